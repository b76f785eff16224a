// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The safetensors reader on any bytes: it must refuse or accept, and every byte of an accepted tensor must be readable.
// Seeds: corpus/FuzzSafetensors.
#include "runtime/safetensors/Safetensors.h"

#include <cstdlib>
#include <vector>

using namespace rl;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto file = SafetensorsFile::parse(data, size);
  if (!file) {
    if (file.error().message.empty() || file.error().code != Code::Invalid)
      std::abort();
    return 0;
  }
  size_t total = 0;
  unsigned sum = 0;
  for (const SafetensorsEntry &e : file->entries()) {
    if (static_cast<size_t>(e.type.bytes()) != e.bytes || file->find(e.name) != &e)
      std::abort();
    total += e.bytes;
    for (size_t i = 0; i < e.bytes; ++i)
      sum += std::to_integer<unsigned>(e.data[i]);
    TensorType other = e.type;
    other.shape.push_back(1);
    auto got = file->get(e.name, e.type);
    if ((e.type.dtype != DType::Bool && !got.ok()) || file->get(e.name, other).ok())
      std::abort();
  }
  if (total > size)
    std::abort();
  [[maybe_unused]] static volatile unsigned sink;
  sink = sum; // so that the reads are not optimised away
  return 0;
}
