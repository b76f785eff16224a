// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/api/Reference.h"
#include "ir/interp/Interpreter.h"

#include <cstring>
#include <mutex>

namespace rl {

namespace {

class ReferenceModule : public Module {
public:
  ReferenceModule(Graph g, size_t state) : graph(std::move(g)), state(state) {
    auto list = [&](const std::vector<ValueId> &ids, std::vector<PackageTensor> &out) {
      for (ValueId v : ids)
        out.push_back({graph.values[v].name, graph.type(v)});
    };
    list(graph.inputs, signature[0]);
    list(graph.parameters, signature[1]);
    list(graph.outputs, signature[2]);
    signature[2].resize(signature[2].size() - state);
    bound.resize(graph.parameters.size());
    isBound.resize(graph.parameters.size());
  }

  const std::vector<PackageTensor> &tensors(int kind) const override { return signature[kind]; }

  Status bind(std::string_view parameter, const void *data, size_t bytes) override {
    std::lock_guard lock(mutex);
    RL_ASSIGN(size_t i, place(parameter, data, bytes));
    bound[i] = copy(signature[1][i].type, data);
    isBound[i] = true;
    return {};
  }

  Status read(std::string_view parameter, void *data, size_t bytes) override {
    std::lock_guard lock(mutex);
    RL_ASSIGN(size_t i, place(parameter, data, bytes));
    if (!isBound[i])
      return usageError("parameter " + signature[1][i].name + " is not bound");
    if (bytes)
      std::memcpy(data, bound[i].data.data(), bytes);
    return {};
  }

  Status run(const void *const *inputs, void *const *outputs, void *) override {
    std::lock_guard lock(mutex);
    for (size_t i = 0; i < isBound.size(); ++i)
      if (!isBound[i])
        return usageError("parameter " + signature[1][i].name + " is not bound");
    std::vector<HostTensor> in;
    for (size_t i = 0; i < signature[0].size(); ++i) {
      const PackageTensor &t = signature[0][i];
      if ((!inputs || !inputs[i]) && t.type.bytes())
        return usageError("input " + t.name + ": the pointer is null");
      in.push_back(copy(t.type, inputs ? inputs[i] : nullptr));
    }
    for (size_t i = 0; i < signature[2].size(); ++i)
      if ((!outputs || !outputs[i]) && signature[2][i].type.bytes())
        return usageError("output " + signature[2][i].name + ": the pointer is null");
    RL_ASSIGN(std::vector<HostTensor> out, interpret(graph, in, bound));
    const size_t returned = signature[2].size();
    for (size_t i = 0; i < returned; ++i)
      if (!out[i].data.empty())
        std::memcpy(outputs[i], out[i].data.data(), out[i].data.size());
    for (size_t k = 0; k < state; ++k)
      bound[bound.size() - state + k] = std::move(out[returned + k]);
    return {};
  }

  int kernelCount() const override { return 0; }

private:
  /// Of a parameter, whose size and data pointer are checked.
  Result<size_t> place(std::string_view parameter, const void *data, size_t bytes) const {
    for (size_t i = 0; i < signature[1].size(); ++i) {
      const PackageTensor &t = signature[1][i];
      if (t.name != parameter)
        continue;
      if (bytes != static_cast<size_t>(t.type.bytes()))
        return invalid("/" + t.name, "parameter " + t.name + " is " + str(t.type) + ", " +
                                         std::to_string(t.type.bytes()) + " bytes; " + std::to_string(bytes) +
                                         " given");
      if (!data && bytes)
        return usageError("parameter " + t.name + ": the data pointer is null");
      return i;
    }
    return usageError("no parameter is called " + std::string(parameter));
  }

  static HostTensor copy(const TensorType &type, const void *data) {
    HostTensor t{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
    if (!t.data.empty())
      std::memcpy(t.data.data(), data, t.data.size());
    return t;
  }

  Graph graph;
  size_t state;
  std::vector<PackageTensor> signature[3];
  std::vector<HostTensor> bound;
  std::vector<bool> isBound;
  std::mutex mutex;
};

} // namespace

std::unique_ptr<Module> makeReferenceModule(Graph graph, size_t state) {
  return std::make_unique<ReferenceModule>(std::move(graph), state);
}

} // namespace rl
