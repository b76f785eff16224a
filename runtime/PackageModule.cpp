// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The signature and argument checks of modules, and the choice of the module for a package's target.
#include "runtime/PackageModule.h"

namespace rl {

bool isEmptyLaunch(const Package &p, const PackageLaunch &l) {
  if (l.kind == PackageLaunch::Copy)
    return p.buffers[l.args[0]].bytes == 0;
  if (p.target == "cpu")
    return l.blocks == 0;
  return l.grid.x == 0 || l.grid.y == 0 || l.grid.z == 0;
}

std::string describeLaunch(const PackageLaunch &l) {
  std::string out = l.kind == PackageLaunch::Copy ? "copy" : "kernel '" + l.planName() + "'";
  return l.label.empty() ? out : out + " (" + l.label + ")";
}

Error misalignedLaunch(const PackageLaunch &l) {
  return usageError(describeLaunch(l) + " needs pointers aligned to " + std::to_string(l.align) + " bytes");
}

PackageModule::PackageModule(Package package) : contents(std::move(package)) {
  auto requirements = [](const std::vector<PackageTensor> &tensors) {
    std::vector<Requirement> out;
    out.reserve(tensors.size());
    for (const PackageTensor &t : tensors)
      out.push_back({dtypeSize(t.type.dtype) - 1, t.type.bytes() == 0});
    return out;
  };
  inputRequirements = requirements(contents.inputs);
  outputRequirements = requirements(contents.outputs);
  for (const PackageLaunch &l : contents.launches)
    kernels += l.kind == PackageLaunch::Kernel && !isEmptyLaunch(contents, l);
}

const std::vector<PackageTensor> &PackageModule::tensors(int kind) const {
  return kind == 0 ? contents.inputs : kind == 1 ? contents.parameters : contents.outputs;
}

Result<size_t> PackageModule::checkBind(std::string_view parameter, const void *data, size_t bytes) const {
  const auto &parameters = contents.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].name != parameter)
      continue;
    auto wanted = static_cast<size_t>(parameters[i].type.bytes());
    if (bytes != wanted)
      return invalid({}, "parameter '" + parameters[i].name + "' (" + str(parameters[i].type) + ") has " +
                             std::to_string(wanted) + " bytes, not " + std::to_string(bytes));
    if (!data && wanted)
      return usageError("the data of parameter '" + parameters[i].name + "' is a null pointer");
    return i;
  }
  return usageError("there is no parameter '" + std::string(parameter) + "'");
}

Status PackageModule::checkPointers(const void *const *inputs, void *const *outputs) const {
  auto check = [](const void *pointer, const Requirement &need, const PackageTensor &tensor,
                  const char *what) -> Status {
    if (need.empty)
      return {};
    if (!pointer)
      return usageError(std::string("the pointer of ") + what + " '" + tensor.name + "' is null");
    return usageError(std::string("the pointer of ") + what + " '" + tensor.name + "' is not aligned to its element, " +
                      std::to_string(need.mask + 1) + " bytes");
  };
  auto bad = [](const void *pointer, const Requirement &need) {
    return (!pointer || (reinterpret_cast<uintptr_t>(pointer) & need.mask)) && !need.empty;
  };
  for (size_t i = 0; i < inputRequirements.size(); ++i)
    if (bad(inputs[i], inputRequirements[i]))
      return check(inputs[i], inputRequirements[i], contents.inputs[i], "input");
  for (size_t i = 0; i < outputRequirements.size(); ++i)
    if (bad(outputs[i], outputRequirements[i]))
      return check(outputs[i], outputRequirements[i], contents.outputs[i], "output");
  return {};
}

Error PackageModule::unbound(size_t parameter) const {
  return usageError("parameter '" + contents.parameters[parameter].name + "' is not bound");
}

Result<std::unique_ptr<Module>> makeModule(Package package, CpuResolver resolver) {
  RL_TRY(validatePackage(package));
  if (package.target == "cpu")
    return makeCpuModule(std::move(package), std::move(resolver));
  return makeCudaModule(std::move(package));
}

} // namespace rl
