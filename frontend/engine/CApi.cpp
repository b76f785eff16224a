// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The compiler's part of the C interface; the rest is the runtime's.
#include "runtime/CApi.h"
#include "frontend/api/Engine.h"
#include "frontend/engine/Options.h"
#include "frontend/json/JsonReader.h"

#include <cstdlib>
#include <cstring>

using namespace rl;

namespace {

/// A module that remembers what it was compiled from, for rl_save and rl_explain.
class CompiledModule : public Module {
public:
  CompiledModule(std::unique_ptr<Module> module, Artifact artifact)
      : module(std::move(module)), artifact(std::move(artifact)) {}
  const std::vector<PackageTensor> &tensors(int kind) const override {
    if (module)
      return module->tensors(kind);
    const Package &p = artifact.package;
    return kind == 0 ? p.inputs : kind == 1 ? p.parameters : p.outputs;
  }
  Status bind(std::string_view parameter, const void *data, size_t bytes) override {
    if (!module)
      return elsewhere();
    return module->bind(parameter, data, bytes);
  }
  Status read(std::string_view parameter, void *data, size_t bytes) override {
    if (!module)
      return elsewhere();
    return module->read(parameter, data, bytes);
  }
  Status run(const void *const *inputs, void *const *outputs, void *stream) override {
    if (!module)
      return elsewhere();
    return module->run(inputs, outputs, stream);
  }
  int kernelCount() const override {
    if (module)
      return module->kernelCount();
    int n = 0;
    for (const PackageLaunch &l : artifact.package.launches)
      n += l.kind == PackageLaunch::Kernel;
    return n;
  }
  const Package *package() const override {
    return artifact.target.kind == Target::Reference ? nullptr : &artifact.package;
  }
  Result<std::string> explain(std::string_view format) const { return explainArtifact(artifact, format); }

private:
  Error elsewhere() const {
    return deviceError("this module was compiled for " + artifact.target.name + " (" + artifact.target.arch +
                       "), which is not this machine's");
  }
  std::unique_ptr<Module> module; ///< null: compiled for another machine; it can be saved
  Artifact artifact;
};

} // namespace

extern "C" {

RL_API int rl_compile(const char *graph_json, size_t length, const char *target, const char *options, rl_module **out) {
  return guarded([&]() -> int {
    if (!out)
      return setLastError(usageError("rl_compile: out is NULL"));
    *out = nullptr;
    if (!graph_json)
      return setLastError(usageError("rl_compile: graph_json is NULL"));
    auto spec = parseGraph({graph_json, length});
    if (!spec)
      return setLastError(spec.error(), "graph");
    EngineOptions engine;
    if (Status s = applyOptions(options ? options : "", *spec, engine); !s)
      return setLastError(s.error(), "options");
    auto resolved = resolveTarget(target ? target : "");
    if (!resolved)
      return setLastError(resolved.error());
    const bool open = !spec->dims.empty() && engine.dims.empty();
    if (open) // a graph that no extents make valid is invalid
      if (auto signature = checkSpec(*spec); !signature)
        return setLastError(signature.error(), "graph");
    if (open)
      return setLastError(
          unsupported("/dims", "the graph has symbolic dimensions; give their extents in the options, {\"dims\": {\"" +
                                   spec->dims[0].name + "\": 32}}"),
          "graph");
    auto artifact = compileSpec(*spec, *resolved, engine);
    if (!artifact)
      return setLastError(artifact.error(), "graph");
    std::unique_ptr<Module> module;
    if (artifact->target.runsHere) {
      auto made = makeModule(*artifact);
      if (!made)
        return setLastError(made.error());
      module = *std::move(made);
    }
    *out = wrapModule(std::make_unique<CompiledModule>(std::move(module), *std::move(artifact)));
    return RL_OK;
  });
}

RL_API int rl_save(const rl_module *module, const char *directory) {
  return guarded([&]() -> int {
    if (!module || !directory)
      return setLastError(usageError("rl_save: an argument is NULL"));
    const Package *package = module->impl->package();
    if (!package)
      return setLastError(unsupported({}, "the reference interpreter has no package; compile for cpu or a GPU"));
    if (Status s = savePackage(*package, directory); !s)
      return setLastError(s.error());
    return RL_OK;
  });
}

RL_API int rl_explain(const rl_module *module, const char *format, char **text) {
  return guarded([&]() -> int {
    if (!module || !text)
      return setLastError(usageError("rl_explain: an argument is NULL"));
    *text = nullptr;
    std::string_view f = format ? format : "text";
    auto *compiled = dynamic_cast<const CompiledModule *>(module->impl.get());
    const Package *package = module->impl->package();
    auto rendered = compiled  ? compiled->explain(f)
                    : package ? explainPackage(*package, f)
                              : Result<std::string>(unsupported({}, "this module carries no decision record"));
    if (!rendered)
      return setLastError(rendered.error());
    char *copy = static_cast<char *>(std::malloc(rendered->size() + 1));
    if (!copy)
      return setOutOfMemory();
    std::memcpy(copy, rendered->c_str(), rendered->size() + 1);
    *text = copy;
    return RL_OK;
  });
}

RL_API void rl_free_text(char *text) { std::free(text); }

} // extern "C"
