// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps LLVM's other back ends out of our binaries. LLD's library starts every target that LLVM was built with (for link-time
// optimisation, which we do not use), and so would link twenty back ends, about 90 MB. These definitions are found before
// the archives' own. Debian's build also registers Polly as an extension; it has no part in this.
#include "llvm/Plugins/PassPlugin.h"

#define NO_TARGET(name)                                                                                                \
  extern "C" void LLVMInitialize##name##TargetInfo() {}                                                                \
  extern "C" void LLVMInitialize##name##Target() {}                                                                    \
  extern "C" void LLVMInitialize##name##TargetMC() {}
#define NO_PRINTER(name)                                                                                               \
  extern "C" void LLVMInitialize##name##AsmPrinter() {}
#define NO_PARSER(name)                                                                                                \
  extern "C" void LLVMInitialize##name##AsmParser() {}

// The targets of llvm/Config/Targets.def but X86 and NVPTX.
// clang-format off: the tool never settles on this macro's line ends.
#define TARGETS(X) \
  X(AArch64) X(AMDGPU) X(ARM) X(AVR) X(BPF) X(Hexagon) X(Lanai) X(LoongArch) X(Mips) X(MSP430) X(PowerPC) X(RISCV) \
  X(Sparc) X(SPIRV) X(SystemZ) X(VE) X(WebAssembly) X(XCore) X(M68k) X(Xtensa)
// clang-format on

TARGETS(NO_TARGET)
TARGETS(NO_PRINTER)
TARGETS(NO_PARSER)

llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "Polly", "", [](llvm::PassBuilder &) {}};
}
