// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's own CUDA graph of a plan. The nodes form a chain: the arena's ranges are planned for that order.
#include "runtime/cuda/CudaState.h"

namespace rl {

using cu::kSuccess;

cu::KernelNodeParams CudaLaunch::nodeParams() {
  const Extent3 &grid = useUnaligned ? launch->unalignedGrid : launch->grid;
  const Extent3 &block = useUnaligned ? launch->unalignedBlock : launch->block;
  return {.function = useUnaligned ? unaligned : function,
          .gridX = grid.x,
          .gridY = grid.y,
          .gridZ = grid.z,
          .blockX = block.x,
          .blockY = block.y,
          .blockZ = block.z,
          .sharedBytes = launch->sharedBytes,
          .params = params.data(),
          .extra = nullptr};
}

std::unique_ptr<CudaGraph> CudaGraph::build(const cu::Api &api, std::vector<CudaLaunch> &launches) {
  if (!api.cuGraphCreate || !api.cuGraphDestroy || !api.cuGraphAddKernelNode || !api.cuGraphInstantiateWithFlags ||
      !api.cuGraphExecKernelNodeSetParams || !api.cuGraphLaunch || !api.cuGraphExecDestroy)
    return nullptr;
  std::unique_ptr<CudaGraph> out(new CudaGraph(api));
  if (api.cuGraphCreate(&out->graph, 0) != kSuccess)
    return nullptr;
  for (CudaLaunch &l : launches) {
    cu::KernelNodeParams params = l.nodeParams();
    cu::GraphNode node = nullptr;
    const cu::GraphNode *previous = out->nodes.empty() ? nullptr : &out->nodes.back();
    if (api.cuGraphAddKernelNode(&node, out->graph, previous, previous ? 1 : 0, &params) != kSuccess)
      return nullptr;
    if (l.hasCluster && (!api.cuGraphKernelNodeSetAttribute ||
                         api.cuGraphKernelNodeSetAttribute(node, l.cluster.id, &l.cluster.value) != kSuccess))
      return nullptr;
    out->nodes.push_back(node);
  }
  if (api.cuGraphInstantiateWithFlags(&out->exec, out->graph, 0) != kSuccess)
    return nullptr;
  return out;
}

CudaGraph::~CudaGraph() {
  if (exec)
    api.cuGraphExecDestroy(exec);
  if (graph)
    api.cuGraphDestroy(graph);
}

cu::Result CudaGraph::update(size_t index, CudaLaunch &l) {
  cu::KernelNodeParams params = l.nodeParams();
  return api.cuGraphExecKernelNodeSetParams(exec, nodes[index], &params);
}

cu::Result CudaGraph::launch(cu::Stream stream) { return api.cuGraphLaunch(exec, stream); }

} // namespace rl
