// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// CUDA for the rest of the project (the command line, benches, tests): the device, memory, streams, events and the
// assembler of PTX, all through the driver that is opened at run time. Every call works in the caller's current
// context, or in the primary context of device 0 where there is none. Failures are Code::Device with the driver's own
// name and text.
#pragma once

#include "runtime/base/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace rl {

/// A driver and at least one device. Starts the driver (tens to hundreds of milliseconds once a process) where there is
/// one.
bool cudaAvailable();

struct CudaDevice {
  std::string name; ///< "NVIDIA H200"
  int ordinal = 0;
  int major = 0, minor = 0; ///< compute capability
  int sms = 0;              ///< multiprocessors
  int clockKHz = 0;         ///< 0 where the driver does not tell
  int memoryClockKHz = 0;   ///< 0 where the driver does not tell
  int memoryBusBits = 0;
  int64_t l2Bytes = 0;
  int64_t sharedPerSm = 0, sharedPerBlock = 0; ///< bytes; per block: the most that a kernel can ask for
  int64_t memoryBytes = 0;
  int driverVersion = 0; ///< 13000 for CUDA 13.0

  /// The target to compile for: "sm_80"; with the architecture's own features from 9.0 on: "sm_90a".
  std::string arch() const;
};

/// The device of the current context, or device 0; makes no context.
Result<CudaDevice> currentCudaDevice();

/// Machine code for the current device. Code::Unsupported for text with `setmaxnreg`: it would be code that may be linked with
/// other code, in which the driver ignores that instruction (C7504) and spills; loading the text itself does not.
/// Code::Invalid with the assembler's log where the text is not valid PTX.
Result<std::string> assemblePtx(const std::string &ptx);

/// A stream of its own, which does not wait for the default stream.
class CudaStream {
public:
  static Result<CudaStream> create();
  void *handle() const { return stream.get(); } ///< a CUstream, for Module::run
  /// Waits for all work on it. A kernel's fault comes out here; the message names the last kernel that was launched.
  Status synchronize() const;

private:
  std::shared_ptr<void> stream;
};

/// Device memory.
class CudaMemory {
public:
  CudaMemory() = default;
  static Result<CudaMemory> allocate(size_t bytes); ///< 0 bytes: a null pointer
  void *data() const { return reinterpret_cast<void *>(static_cast<uintptr_t>(*pointer)); }
  size_t size() const { return bytes; }

  /// Copies that have ended when the call returns. They do not wait for work on other streams: synchronise those first.
  Status upload(const void *host, size_t count, size_t offset = 0);
  Status download(void *host, size_t count, size_t offset = 0) const;
  /// Sets every byte, in order on `stream` (null: the default stream). Enqueues only.
  Status fill(uint8_t value, void *stream = nullptr);

private:
  std::shared_ptr<const uint64_t> pointer = std::make_shared<uint64_t>(0);
  size_t bytes = 0;
};

/// A point in a stream's work, with its time.
class CudaEvent {
public:
  static Result<CudaEvent> create();
  Status record(void *stream);
  Status synchronize() const;
  /// Microseconds from `start` to `end`, both recorded; waits for `end`. Resolution is about 0.5 us.
  static Result<double> elapsedMicroseconds(const CudaEvent &start, const CudaEvent &end);

private:
  std::shared_ptr<void> event;
};

/// Waits for all work of the current context.
Status cudaSynchronize();

/// Bytes free and in all on the current device.
struct CudaMemoryInfo {
  size_t free = 0, total = 0;
};
Result<CudaMemoryInfo> cudaMemoryInfo();

} // namespace rl
