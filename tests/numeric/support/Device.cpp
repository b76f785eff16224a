// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/numeric/support/Device.h"

#include "frontend/api/Engine.h"
#include "runtime/cuda/Cuda.h"

#include <cstdlib>
#include <cstring>
#include <iterator>

namespace rl::numeric {

namespace {

constexpr size_t kFence = 256; ///< bytes before and behind a tensor
constexpr uint8_t kPoison = 0xFF, kFenceByte = 0xA5;

/// A tensor's place within a buffer that starts at a multiple of 256 bytes.
struct Place {
  size_t offset, bytes, total;
  /// Elements: not all tensors are off by the same, and some not at all.
  static size_t shift(size_t number) {
    static constexpr size_t elements[] = {1, 0, 4, 2, 1, 8, 3};
    return elements[number % std::size(elements)];
  }
  Place(const TensorType &type, bool shifted, size_t number)
      : offset(kFence + (shifted ? shift(number) * dtypeSize(type.dtype) : 0)),
        bytes(static_cast<size_t>(type.bytes())), total((offset + bytes + 2 * kFence - 1) / kFence * kFence) {}
  std::vector<std::byte> image(const std::byte *data) const {
    std::vector<std::byte> out(total, std::byte{kFenceByte});
    if (data)
      std::memcpy(out.data() + offset, data, bytes);
    else
      std::memset(out.data() + offset, kPoison, bytes);
    return out;
  }
  /// The byte that was written outside of the tensor, counted from its start; 0: none.
  Status checkFences(const std::vector<std::byte> &image, const std::string &name) const {
    for (size_t i = 0; i < total; ++i)
      if ((i < offset || i >= offset + bytes) && image[i] != std::byte{kFenceByte})
        return deviceError("'" + name + "': byte " +
                           std::to_string(static_cast<int64_t>(i) - static_cast<int64_t>(offset)) + " of " +
                           std::to_string(bytes) + " was written");
    return {};
  }
};

class EngineDevice : public Device {
public:
  explicit EngineDevice(Target target) : target(std::move(target)) {}

  Result<std::unique_ptr<Module>> compile(const GraphSpec &spec, int64_t delayedScaling) override {
    EngineOptions options;
    options.cache = "off";
    options.delayedScaling = delayedScaling;
    RL_ASSIGN(Artifact artifact, compileSpec(spec, target, options));
    record = artifact.package.explain;
    return makeModule(std::move(artifact));
  }

protected:
  Target target;
};

class HostDevice final : public EngineDevice {
public:
  using EngineDevice::EngineDevice;

  Result<std::vector<HostTensor>> run(Module &module, const std::vector<HostTensor> &inputs,
                                      const std::vector<HostTensor> &parameters, bool offset) override {
    std::vector<Buffer> in, out;
    std::vector<const void *> inPointers;
    std::vector<void *> outPointers;
    for (size_t i = 0; i < parameters.size(); ++i)
      RL_TRY(module.bind(module.tensors(1)[i].name, parameters[i].data.data(), parameters[i].data.size()));
    for (const HostTensor &t : inputs) {
      in.emplace_back(t.type, offset, in.size() + parameters.size(), t.data.data());
      inPointers.push_back(in.back().pointer());
    }
    for (const PackageTensor &t : module.tensors(2)) {
      out.emplace_back(t.type, offset, inputs.size() + out.size(), nullptr);
      outPointers.push_back(out.back().pointer());
    }
    RL_TRY(module.run(inPointers.data(), outPointers.data(), nullptr));
    std::vector<HostTensor> results;
    for (size_t i = 0; i < out.size(); ++i) {
      const PackageTensor &t = module.tensors(2)[i];
      std::vector<std::byte> image(out[i].memory.get(), out[i].memory.get() + out[i].place.total);
      RL_TRY(out[i].place.checkFences(image, t.name));
      const std::byte *data = image.data() + out[i].place.offset;
      results.push_back({t.type, {data, data + out[i].place.bytes}});
    }
    for (size_t i = 0; i < in.size(); ++i)
      if (std::memcmp(in[i].pointer(), inputs[i].data.data(), in[i].place.bytes) != 0)
        return deviceError("the input '" + module.tensors(0)[i].name + "' was written");
    return results;
  }

private:
  struct Free {
    void operator()(std::byte *p) const { std::free(p); }
  };
  struct Buffer {
    Place place;
    std::unique_ptr<std::byte, Free> memory;
    Buffer(const TensorType &type, bool offset, size_t number, const std::byte *data) : place(type, offset, number) {
      memory.reset(static_cast<std::byte *>(std::aligned_alloc(kFence, place.total)));
      std::vector<std::byte> image = place.image(place.bytes ? data : nullptr);
      std::memcpy(memory.get(), image.data(), place.total);
    }
    void *pointer() const { return memory.get() + place.offset; }
  };
};

class CudaDeviceRunner final : public EngineDevice {
public:
  CudaDeviceRunner(Target target, CudaStream stream) : EngineDevice(std::move(target)), stream(std::move(stream)) {}

  Result<std::vector<HostTensor>> run(Module &module, const std::vector<HostTensor> &inputs,
                                      const std::vector<HostTensor> &parameters, bool offset) override {
    std::vector<std::pair<Place, CudaMemory>> in, out;
    std::vector<const void *> inPointers;
    std::vector<void *> outPointers;
    auto place = [&](const TensorType &type, const std::byte *data, auto &into) -> Result<void *> {
      Place p(type, offset, in.size() + out.size());
      RL_ASSIGN(CudaMemory memory, CudaMemory::allocate(p.total));
      std::vector<std::byte> image = p.image(p.bytes ? data : nullptr);
      RL_TRY(memory.upload(image.data(), image.size()));
      into.push_back({p, memory});
      return static_cast<void *>(static_cast<std::byte *>(memory.data()) + p.offset);
    };
    for (size_t i = 0; i < parameters.size(); ++i)
      RL_TRY(module.bind(module.tensors(1)[i].name, parameters[i].data.data(), parameters[i].data.size()));
    for (const HostTensor &t : inputs) {
      RL_ASSIGN(void *p, place(t.type, t.data.data(), in));
      inPointers.push_back(p);
    }
    for (const PackageTensor &t : module.tensors(2)) {
      RL_ASSIGN(void *p, place(t.type, nullptr, out));
      outPointers.push_back(p);
    }
    RL_TRY(module.run(inPointers.data(), outPointers.data(), stream.handle()));
    RL_TRY(stream.synchronize());
    std::vector<HostTensor> results;
    for (size_t i = 0; i < out.size(); ++i) {
      const PackageTensor &t = module.tensors(2)[i];
      const auto &[p, memory] = out[i];
      std::vector<std::byte> image(p.total);
      RL_TRY(memory.download(image.data(), image.size()));
      RL_TRY(p.checkFences(image, t.name));
      const std::byte *data = image.data() + p.offset;
      results.push_back({t.type, {data, data + p.bytes}});
    }
    return results;
  }

private:
  CudaStream stream;
};

} // namespace

Result<std::unique_ptr<Device>> Device::create(const std::string &name) {
  RL_ASSIGN(Target target, resolveTarget(name));
  if (target.kind == Target::Cpu)
    return std::unique_ptr<Device>(std::make_unique<HostDevice>(std::move(target)));
  if (target.kind != Target::Cuda || !target.runsHere)
    return usageError("tests run on 'cpu' or 'cuda', not on '" + name + "'");
  RL_ASSIGN(CudaStream stream, CudaStream::create());
  return std::unique_ptr<Device>(std::make_unique<CudaDeviceRunner>(std::move(target), std::move(stream)));
}

Result<std::unique_ptr<Device>> Device::ofEnvironment() {
  const char *target = std::getenv("RIDGELINE_TEST_TARGET");
  return create(target ? target : "cpu");
}

} // namespace rl::numeric
