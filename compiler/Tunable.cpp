// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Tunable.h"
#include "ir/dialect/OpModel.h"
#include "ir/dialect/Ridge.h"

#include <algorithm>

using namespace mlir;

namespace rl {

std::optional<TunableKernel> tunableKernel(ridge::GroupOp group) {
  DictionaryAttr schedule = group.getScheduleAttr();
  auto candidates = schedule ? schedule.getAs<DictionaryAttr>("candidates") : DictionaryAttr();
  if (!candidates)
    return std::nullopt;
  TunableKernel out;
  out.key = candidates.getAs<StringAttr>("key").str();
  for (StringAttr tile : candidates.getAs<ArrayAttr>("tiles").getAsRange<StringAttr>())
    out.tiles.push_back(tile.str());
  for (mlir::Value v : group.getOperands())
    out.inputs.push_back(*ridge::toTensorType(v.getType()));
  for (mlir::Value v : group.getResults())
    out.outputs.push_back(*ridge::toTensorType(v.getType()));
  return out;
}

Status checkChoices(const TileChoices &choices, const std::vector<TunableKernel> &kernels) {
  for (const auto &[key, choice] : choices)
    if (std::none_of(kernels.begin(), kernels.end(), [&](const TunableKernel &k) { return k.key == key; }))
      return usageError("a tile is chosen for kernel " + key +
                        ", which this graph does not have, or with one tile alone");
  return {};
}

} // namespace rl
