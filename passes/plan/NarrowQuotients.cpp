// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/NarrowQuotients.h"

namespace rl {

std::vector<bool> narrowQuotients(const Graph &graph, const Trace &trace) {
  struct Care {
    bool used = false, large = false, small = false; ///< whether a user tells large values apart, or small ones
  };
  std::vector<Care> care(trace.instances.size());
  for (const TraceStore &s : trace.stores)
    care[s.instance].large = care[s.instance].small = true;
  std::vector<bool> out(trace.instances.size(), false);
  for (uint32_t i = static_cast<uint32_t>(trace.instances.size()); i-- > 0;) { // users come behind
    const Instance &in = trace.instances[i];
    if (in.node == kNone)
      continue;
    const Node &node = graph.nodes[in.node];
    DType type = graph.type(in.value).dtype;
    const Care own = care[i];
    out[i] = node.op == OpKind::Div && type == DType::F32 && own.used && !own.large && !own.small;
    Care of{true, true, true};
    if (node.op == OpKind::Cast && (type == DType::F8E4M3 || type == DType::F8E5M2 || type == DType::I8)) {
      of.large = of.small = false;
    } else if (node.op == OpKind::Clamp && type == DType::F32) {
      of.large = !node.attrs.min || !node.attrs.max || node.attrs.min->asDouble() < -0x1p19 ||
                 node.attrs.max->asDouble() > 0x1p19;
      of.small = own.small;
    } else if (node.op == OpKind::Round) {
      of.large = own.large;
      of.small = false;
    } else if (opInfo(node.op).cls == OpClass::Shape && in.pieces.empty()) {
      of = own;
    }
    auto use = [&](uint32_t o) {
      if (o != kNone) {
        care[o].used = true;
        care[o].large |= of.large;
        care[o].small |= of.small;
      }
    };
    for (uint32_t o : in.operands)
      use(o);
    for (const Instance::Piece &p : in.pieces)
      use(p.instance);
  }
  return out;
}

} // namespace rl
