// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/lower/Jit.h"
#include "compiler/lower/Backend.h"

#include "lld/Common/Driver.h"
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <mutex>

LLD_HAS_DRIVER(elf)

namespace rl {

static Error failure(const char *what, llvm::Error error) {
  return unsupported({}, std::string("internal: ") + what + ": " + llvm::toString(std::move(error)));
}

Result<CodeResolver> loadObject(const std::string &object) {
  initializeTarget(/*nvptx=*/false);
  llvm::orc::JITTargetMachineBuilder machine(llvm::Triple("x86_64-unknown-linux-gnu"));
  auto made = llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(machine)).create();
  if (!made)
    return failure("ORC did not start", made.takeError());
  std::shared_ptr<llvm::orc::LLJIT> jit = std::move(*made);
  auto process = llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(jit->getDataLayout().getGlobalPrefix());
  if (!process)
    return failure("ORC sees no process symbols", process.takeError());
  jit->getMainJITDylib().addGenerator(std::move(*process));
  if (auto error = jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(object, "kernels.o")))
    return failure("ORC refuses the object", std::move(error));
  return CodeResolver([jit](const std::string &symbol) -> Result<void *> {
    auto address = jit->lookup(symbol);
    if (!address)
      return failure("a kernel was not found", address.takeError());
    return address->toPtr<void *>();
  });
}

Result<std::string> linkSharedObject(const std::string &object) {
  // LLD keeps its state in globals: one link at a time.
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  llvm::SmallString<128> in, out;
  int fd = -1;
  if (std::error_code error = llvm::sys::fs::createTemporaryFile("ridgeline", "o", fd, in))
    return deviceError("cannot write a temporary file: " + error.message());
  llvm::FileRemover removeIn(in);
  {
    llvm::raw_fd_ostream file(fd, /*shouldClose=*/true);
    file << object;
    file.flush();
    if (file.has_error()) {
      std::string message = file.error().message();
      file.clear_error();
      return deviceError("cannot write " + in.str().str() + ": " + message);
    }
  }
  if (std::error_code error = llvm::sys::fs::createTemporaryFile("ridgeline", "so", out))
    return deviceError("cannot write a temporary file: " + error.message());
  llvm::FileRemover removeOut(out);
  std::string said;
  llvm::raw_string_ostream stream(said);
  std::vector<const char *> args = {"ld.lld",      "-shared", "--build-id=none", "-z",
                                    "noexecstack", "-o",      out.c_str(),       in.c_str()};
  lld::Result linked = lld::lldMain(args, stream, stream, {{lld::Gnu, &lld::elf::link}});
  if (linked.retCode != 0)
    return unsupported({}, "internal: linking the package's shared object failed: " + said);
  auto buffer = llvm::MemoryBuffer::getFile(out);
  if (!buffer)
    return deviceError("cannot read " + out.str().str() + ": " + buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

} // namespace rl
