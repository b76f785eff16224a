// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's own CUDA graph of a plan. The nodes form a chain: the arena's ranges are planned for that order.
#include "runtime/cuda/CudaState.h"

namespace rl {

using cu::kSuccess;

Extent3 CudaLaunch::grid() const {
  return useUnaligned ? launch->unalignedGrid : Extent3{blocks, launch->grid.y, launch->grid.z};
}

cu::LaunchAttribute CudaLaunch::clusterAttribute() const {
  cu::LaunchAttribute out;
  out.id = cu::kAttributeClusterDimension;
  out.value.cluster[0] = cluster().x;
  out.value.cluster[1] = cluster().y;
  out.value.cluster[2] = cluster().z;
  return out;
}

cu::KernelNodeParams CudaLaunch::nodeParams() {
  Extent3 g = grid();
  const Extent3 &b = block();
  return {.function = useUnaligned ? unaligned : function,
          .gridX = g.x,
          .gridY = g.y,
          .gridZ = g.z,
          .blockX = b.x,
          .blockY = b.y,
          .blockZ = b.z,
          .sharedBytes = sharedBytes(),
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
    const bool plain = previous && !l.early;
    if (api.cuGraphAddKernelNode(&node, out->graph, plain ? previous : nullptr, plain ? 1 : 0, &params) != kSuccess)
      return nullptr;
    if (l.early && api.cuGraphAddDependencies_v2(out->graph, previous, &node, &cu::kProgrammaticEdge, 1) != kSuccess)
      return nullptr;
    if (cu::LaunchAttribute cluster = l.clusterAttribute();
        l.hasCluster() && (!api.cuGraphKernelNodeSetAttribute ||
                           api.cuGraphKernelNodeSetAttribute(node, cluster.id, &cluster.value) != kSuccess))
      return nullptr;
    out->nodes.push_back(node);
    out->clusters.push_back(l.cluster());
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
  if (clusters[index] != l.cluster()) // an attribute of the node that an instantiated graph does not change
    return cu::kInvalidValue;
  cu::KernelNodeParams params = l.nodeParams();
  return api.cuGraphExecKernelNodeSetParams(exec, nodes[index], &params);
}

cu::Result CudaGraph::launch(cu::Stream stream) { return api.cuGraphLaunch(exec, stream); }

} // namespace rl
