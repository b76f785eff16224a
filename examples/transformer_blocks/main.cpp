// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two transformer blocks through the C++ builder, printed as graph files: examples/graphs/*_block.json and their small forms.
//   transformer_blocks gpt2|llama [small]
#include "frontend/api/Builder.h"
#include "frontend/json/JsonReader.h"

#include <cstdio>
#include <string_view>

using namespace rl;

namespace {

struct Sizes {
  int64_t batch, length, width, heads, keyHeads, inner;
  int64_t headWidth() const { return width / heads; }
};

/// [batch, length, n * headWidth] as [batch, n, length, headWidth].
TensorHandle split(GraphBuilder &g, TensorHandle x, const Sizes &s, int64_t n) {
  return g.permute(g.reshape(x, {s.batch, s.length, n, s.headWidth()}), {0, 2, 1, 3});
}

TensorHandle merge(GraphBuilder &g, TensorHandle x, const Sizes &s) {
  return g.reshape(g.permute(x, {0, 2, 1, 3}), {s.batch, s.length, s.width});
}

/// Layer norms, one projection to queries, keys and values, causal attention, and a gelu between two projections.
Result<GraphSpec> gpt2(const Sizes &s, const std::string &name) {
  constexpr DType type = DType::BF16;
  GraphBuilder g(name);
  TensorHandle x = g.input("x", type, {s.batch, s.length, s.width});
  auto vector = [&](const char *n, int64_t extent) { return g.parameter(n, type, {extent}); };
  auto matrix = [&](const char *n, int64_t rows, int64_t columns) { return g.parameter(n, type, {rows, columns}); };

  TensorHandle h = g.layerNorm(x, vector("norm1_weight", s.width), vector("norm1_bias", s.width));
  TensorHandle qkv = g.linear(h, matrix("qkv_weight", 3 * s.width, s.width), vector("qkv_bias", 3 * s.width));
  auto part = [&](int64_t i) {
    SliceOptions o;
    o.dim = 2;
    o.start = i * s.width;
    o.end = (i + 1) * s.width;
    return split(g, g.slice(qkv, o), s, s.heads);
  };
  AttentionOptions causal;
  causal.causal = true;
  TensorHandle a = merge(g, g.scaledDotProductAttention(part(0), part(1), part(2), causal), s);
  x = x + g.linear(a, matrix("out_weight", s.width, s.width), vector("out_bias", s.width));

  h = g.layerNorm(x, vector("norm2_weight", s.width), vector("norm2_bias", s.width));
  GeluOptions tanh;
  tanh.approximate = "tanh";
  h = g.gelu(g.linear(h, matrix("up_weight", s.inner, s.width), vector("up_bias", s.inner)), tanh);
  g.output(x + g.linear(h, matrix("down_weight", s.width, s.inner), vector("down_bias", s.width)), "y");
  return g.build();
}

/// RMS norms, grouped keys and values, rotary embeddings through slice and cat, and a gated unit.
Result<GraphSpec> llama(const Sizes &s, const std::string &name) {
  constexpr DType type = DType::BF16;
  GraphBuilder g(name);
  TensorHandle x = g.input("x", type, {s.batch, s.length, s.width});
  TensorHandle cos = g.input("cos", type, {s.length, s.headWidth()});
  TensorHandle sin = g.input("sin", type, {s.length, s.headWidth()});
  auto matrix = [&](const char *n, int64_t rows, int64_t columns) { return g.parameter(n, type, {rows, columns}); };
  auto rotate = [&](TensorHandle v) {
    SliceOptions low, high;
    low.dim = high.dim = 3;
    low.start = 0;
    low.end = high.start = s.headWidth() / 2;
    high.end = s.headWidth();
    return v * cos + g.cat({-g.slice(v, high), g.slice(v, low)}, 3) * sin;
  };
  // Each key head serves heads / keyHeads query heads.
  auto repeat = [&](TensorHandle v) {
    v = g.expand(g.unsqueeze(v, 2), {s.batch, s.keyHeads, s.heads / s.keyHeads, s.length, s.headWidth()});
    return g.reshape(v, {s.batch, s.heads, s.length, s.headWidth()});
  };

  TensorHandle h = g.rmsNorm(x, g.parameter("norm1", type, {s.width}));
  int64_t keyWidth = s.keyHeads * s.headWidth();
  TensorHandle q = rotate(split(g, g.linear(h, matrix("wq", s.width, s.width)), s, s.heads));
  TensorHandle k = rotate(split(g, g.linear(h, matrix("wk", keyWidth, s.width)), s, s.keyHeads));
  TensorHandle v = split(g, g.linear(h, matrix("wv", keyWidth, s.width)), s, s.keyHeads);
  AttentionOptions causal;
  causal.causal = true;
  TensorHandle a = merge(g, g.scaledDotProductAttention(q, repeat(k), repeat(v), causal), s);
  x = x + g.linear(a, matrix("wo", s.width, s.width));

  h = g.rmsNorm(x, g.parameter("norm2", type, {s.width}));
  TensorHandle gate = g.silu(g.linear(h, matrix("gate", s.inner, s.width)));
  TensorHandle up = g.linear(h, matrix("up", s.inner, s.width));
  g.output(x + g.linear(gate * up, matrix("down", s.width, s.inner)), "y");
  return g.build();
}

} // namespace

int main(int argc, char **argv) {
  std::string_view which = argc > 1 ? argv[1] : "";
  bool small = argc > 2 && std::string_view(argv[2]) == "small";
  Result<GraphSpec> spec = usageError("usage: transformer_blocks gpt2|llama [small]");
  if (which == "gpt2")
    spec = small ? gpt2({2, 24, 64, 4, 4, 256}, "gpt2_block_small") : gpt2({4, 1024, 768, 12, 12, 3072}, "gpt2_block");
  else if (which == "llama")
    spec = small ? llama({2, 24, 128, 8, 2, 344}, "llama_block_small")
                 : llama({1, 2048, 4096, 32, 8, 11008}, "llama_block");
  if (!spec) {
    std::fprintf(stderr, "error: %s\n", spec.error().message.c_str());
    return static_cast<int>(spec.error().code);
  }
  std::fputs(printGraph(*spec).c_str(), stdout);
  return 0;
}
