// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes that ridge-opt knows by name.
#pragma once

/// Registers every pass of the project, and of MLIR those that its tests use.
void registerRidgePasses();
