// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loaded driver, its errors as text, and the context to work in. Private to runtime/cuda; others include Cuda.h.
#pragma once

#include "runtime/base/Result.h"
#include "runtime/cuda/DriverApi.h"

#include <memory>
#include <string>

namespace rl::cu {

/// The driver, opened ("libcuda.so.1", or the file that RIDGELINE_LIBCUDA names) and initialised once a process.
/// Code::Device: there is none, it lacks a function, or cuInit failed; a failure is remembered too.
rl::Result<const Api *> driver();

/// The driver, if it is in the process already (this library or another opened it) and a context is current in this
/// thread. Never starts anything.
const Api *driverWithCurrentContext();

/// "CUDA_ERROR_X: what it means", and, where the error is sticky (an earlier kernel's), the name of the last kernel
/// that this thread launched through this library.
std::string errorText(const Api &, Result);
/// "`what`: errorText".
Error failure(const Api &, Result, const std::string &what);
/// Does the error stay with the context, so that every later call fails with it?
bool isSticky(Result);

/// Remembers what this thread launched last, for the text of sticky errors.
void noteLaunch(const std::shared_ptr<const std::string> &description);

/// Makes sure that a context is current while this lives: the caller's own, else the stream's, else the primary context
/// of device 0 (retained for the life of the process: destroying it under other users of it is not ours to do).
class ContextScope {
public:
  static rl::Result<ContextScope> enter(const Api &, Stream stream = nullptr);
  ContextScope(ContextScope &&other) noexcept : api(other.api), handle(other.handle), pushed(other.pushed) {
    other.pushed = false;
  }
  ContextScope(const ContextScope &) = delete;
  ContextScope &operator=(const ContextScope &) = delete;
  ~ContextScope() { leave(); }
  Context context() const { return handle; }

private:
  ContextScope(const Api &api, Context handle, bool pushed) : api(&api), handle(handle), pushed(pushed) {}
  void leave();
  const Api *api;
  Context handle;
  bool pushed;
};

/// While this lives, this thread may allocate and load although some stream is being captured (by whatever thread):
/// such calls are not part of the capture. Does nothing with drivers that lack the function.
class RelaxedCapture {
public:
  explicit RelaxedCapture(const Api &api) : api(api) { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture &) = delete;
  RelaxedCapture &operator=(const RelaxedCapture &) = delete;

private:
  void exchange() {
    if (api.cuThreadExchangeStreamCaptureMode)
      api.cuThreadExchangeStreamCaptureMode(&mode);
  }
  const Api &api;
  int mode = kCaptureModeRelaxed;
};

} // namespace rl::cu
