// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The Hopper GEMM generator on a GPU: every case of gemmCases and random ones, each element compared with a plain kernel's,
// outputs poisoned before, two runs bit-equal. `--time` measures instead, in alternation with cuBLAS where the environment
// variable RIDGELINE_CUBLAS names its library.
#include "runtime/Module.h"
#include "runtime/cuda/Cuda.h"
#include "tests/gpu/GemmHarness.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <random>
#include <thread>

using namespace rl;
using namespace rl::gemmtest;

namespace {

double decode(const uint8_t *p, DType t) {
  auto bits32 = [](uint32_t b) {
    float f;
    std::memcpy(&f, &b, 4);
    return static_cast<double>(f);
  };
  switch (t) {
  case DType::F32: {
    uint32_t b;
    std::memcpy(&b, p, 4);
    return bits32(b);
  }
  case DType::BF16: {
    uint16_t b;
    std::memcpy(&b, p, 2);
    return bits32(static_cast<uint32_t>(b) << 16);
  }
  case DType::I32: {
    int32_t v;
    std::memcpy(&v, p, 4);
    return v;
  }
  case DType::F8E4M3: { // sign, four bits of exponent biased by 7, three of mantissa; 0x7f is NaN
    int exponent = *p >> 3 & 15, mantissa = *p & 7;
    double v = (*p & 0x7f) == 0x7f ? NAN
               : exponent          ? std::ldexp(8 + mantissa, exponent - 10)
                                   : std::ldexp(mantissa, -9);
    return *p & 0x80 ? -v : v;
  }
  default: {
    _Float16 h;
    std::memcpy(&h, p, 2);
    return static_cast<double>(h);
  }
  }
}

/// Uniform in [-1, 1); f8: any finite code below 4 in magnitude.
std::vector<uint8_t> randomBytes(const TensorType &t, uint64_t seed, bool special = false) {
  std::vector<uint8_t> out(static_cast<size_t>(t.bytes()));
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  auto next = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<uint32_t>(state >> 32);
  };
  auto n = static_cast<size_t>(t.elements());
  for (size_t i = 0; i < n; ++i) {
    float f = static_cast<float>(static_cast<int32_t>(next())) * 0x1p-31f;
    if (special && next() % 4096 == 0)
      f = next() % 2 ? NAN : std::copysign(INFINITY, f);
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    switch (t.dtype) {
    case DType::F32: std::memcpy(&out[4 * i], &bits, 4); break;
    case DType::BF16: {
      auto b = static_cast<uint16_t>(bits >> 16);
      std::memcpy(&out[2 * i], &b, 2);
      break;
    }
    case DType::F16: {
      auto h = static_cast<_Float16>(f);
      std::memcpy(&out[2 * i], &h, 2);
      break;
    }
    case DType::I8: out[i] = static_cast<uint8_t>(next()); break;
    default: out[i] = static_cast<uint8_t>((next() & 0x80) | next() % (t.dtype == DType::F8E4M3 ? 0x48 : 0x44)); break;
    }
  }
  return out;
}

struct Built {
  GemmCase c;
  std::string error;
  Package package, reference;
};

void assemble(Package &p) {
  if (auto cubin = assemblePtx(p.ptx))
    p.cubin = *std::move(cubin);
}

/// Compiles on all cores.
std::vector<Built> build(const std::vector<GemmCase> &cases, bool references) {
  std::vector<Built> out(cases.size());
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i = next++; i < cases.size(); i = next++) {
      out[i].c = cases[i];
      for (bool reference : {false, true}) {
        if (reference && !references)
          continue;
        auto p = compileGemm(cases[i], reference);
        if (!p) {
          out[i].error = p.error().str();
          break;
        }
        (reference ? out[i].reference : out[i].package) = *std::move(p);
        assemble(reference ? out[i].reference : out[i].package);
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back(work);
  for (std::thread &t : threads)
    t.join();
  return out;
}

struct Buffers {
  std::vector<CudaMemory> memory;
  std::vector<const void *> inputs;
  std::vector<void *> outputs;
};

constexpr size_t kGuard = 4096; ///< bytes behind each output that nothing may write

Result<Buffers> allocate(const Package &p, bool special = false) {
  Buffers b;
  uint64_t seed = 1;
  for (const PackageTensor &t : p.inputs) {
    RL_ASSIGN(CudaMemory m, CudaMemory::allocate(static_cast<size_t>(t.type.bytes())));
    RL_TRY(m.upload(randomBytes(t.type, seed++, special).data(), static_cast<size_t>(t.type.bytes())));
    b.inputs.push_back(m.data());
    b.memory.push_back(std::move(m));
  }
  for (const PackageTensor &t : p.outputs) {
    RL_ASSIGN(CudaMemory m, CudaMemory::allocate(static_cast<size_t>(t.type.bytes()) + kGuard));
    b.outputs.push_back(m.data());
    b.memory.push_back(std::move(m));
  }
  return b;
}

/// The outputs, one after another, of a run into memory full of NaNs.
Result<std::vector<std::vector<uint8_t>>> runOnce(Module &m, const Package &p, Buffers &b, CudaStream &stream) {
  for (size_t o = 0; o < p.outputs.size(); ++o)
    RL_TRY(b.memory[p.inputs.size() + o].fill(0xff, stream.handle()));
  RL_TRY(m.run(b.inputs.data(), b.outputs.data(), stream.handle()));
  RL_TRY(stream.synchronize());
  std::vector<std::vector<uint8_t>> out;
  for (size_t o = 0; o < p.outputs.size(); ++o) {
    out.emplace_back(static_cast<size_t>(p.outputs[o].type.bytes()) + kGuard);
    RL_TRY(b.memory[p.inputs.size() + o].download(out.back().data(), out.back().size()));
    if (std::any_of(out.back().end() - kGuard, out.back().end(), [](uint8_t v) { return v != 0xff; }))
      return invalid({}, "something was written behind output " + std::to_string(o));
  }
  return out;
}

/// Empty: right.
Result<std::string> check(Built &built, CudaStream &stream) {
  const GemmCase &c = built.c;
  RL_ASSIGN(auto module, makeModule(built.package));
  RL_ASSIGN(auto reference, makeModule(built.reference));
  RL_ASSIGN(Buffers buffers, allocate(built.package, c.special));
  RL_ASSIGN(auto got, runOnce(*module, built.package, buffers, stream));
  RL_ASSIGN(auto again, runOnce(*module, built.package, buffers, stream));
  RL_ASSIGN(auto want, runOnce(*reference, built.reference, buffers, stream));
  if (got != again)
    return std::string("two runs differ");
  // What the operands lose on their way (tf32 has 10 bits of f32's 23; f8 sums keep about 13), and sums in another order.
  double k = std::sqrt(static_cast<double>(c.k));
  double lost = 0x1p-18;
  if (c.type == DType::F32)
    lost = 0x1p-9;
  else if (dtypeSize(c.type) == 1) // of partial sums alone, where these are added up in f32
    lost = c.promotes ? 0x1p-9 : 0x1p-8;
  double absolute = k * lost + 0x1p-16;
  // Of the computed operand's values, below 3, and where the reference rounds one otherwise in the last bit.
  if (c.left != GemmCase::InMemory)
    absolute = 4 * absolute + k * (c.type == DType::BF16 ? 0x1p-12 : 0x1p-14);
  // Of weights, up to 128 and to 4.
  const double largest = !c.weights ? 1 : *c.weights == DType::I8 ? 128 : 4;
  absolute *= largest;
  // A stage's sum loses what one without promotion does.
  if (c.promotes)
    absolute = std::max(absolute, std::sqrt(std::min(static_cast<double>(c.k), 128.0)) * 0x1p-8);
  for (size_t o = 0; o < want.size(); ++o) {
    DType t = built.package.outputs[o].type.dtype;
    double relative = t == DType::F8E4M3 ? 0x1p-3 : t == DType::BF16 ? 0x1p-7 : t == DType::F16 ? 0x1p-10 : 0x1p-18;
    if (c.epilogue == GemmCase::SwiGlu)
      absolute *= 4 * k * largest; // the factor of the other product
    if (t == DType::I32)
      absolute = relative = 0;
    const double least = t == DType::F8E4M3 ? 0x1p-9 : 0; // from one subnormal to the next
    size_t size = dtypeSize(t), wrong = 0;
    std::string first;
    auto elements = static_cast<size_t>(built.package.outputs[o].type.elements());
    for (size_t i = 0; i < elements; ++i) {
      double x = decode(&got[o][i * size], t), y = decode(&want[o][i * size], t);
      if (x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= absolute + least + relative * std::abs(y))
        continue;
      if (wrong++ == 0) {
        auto n = static_cast<size_t>(c.n), m = static_cast<size_t>(c.m);
        char text[160];
        std::snprintf(text, sizeof text, "output %zu, batch %zu, row %zu, column %zu: %g, not %g", o, i / n / m,
                      i / n % m, i % n, x, y);
        first = text;
      }
    }
    if (wrong)
      return first + "; " + std::to_string(wrong) + " of " + std::to_string(elements) + " wrong";
  }
  return std::string();
}

std::vector<GemmCase> randomCases(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  auto machine = *cost::findTarget("h200");
  std::vector<GemmCase> out;
  while (static_cast<int>(out.size()) < count) {
    GemmCase c;
    c.name = "random " + std::to_string(out.size());
    c.m = pick(1, 700);
    c.n = pick(1, 700);
    c.k = pick(1, 100) * 8;
    c.type = pick(0, 2) ? DType::BF16 : DType::F16;
    c.epilogue = static_cast<GemmCase::Epilogue>(pick(0, 7));
    const bool turned = pick(0, 3) == 0;
    if (turned)
      c.weights = std::array{DType::I8, DType::I8, DType::F8E4M3, DType::F8E5M2}[static_cast<size_t>(pick(0, 3))];
    c.aKMajor = pick(0, 2) || c.m % 8;
    c.bKMajor = pick(0, 2) || c.n % 8;
    if (c.epilogue == GemmCase::BiasResidual)
      c.n = (c.n + 7) / 8 * 8;
    for (int64_t d = turned ? 0 : pick(0, 3); d > 1; --d)
      c.batch.push_back(pick(1, 3));
    if (turned) {
      c.n = (c.n + 15) / 16 * 16;
      c.k *= 2;
      c.aKMajor = c.bKMajor = true;
    }
    c.bBroadcast = pick(0, 1);
    c.tile.tileN = static_cast<int>(pick(2, 32)) * 8;
    c.tile.consumers = static_cast<int>(pick(1, 3));
    c.tile.alternate = c.tile.consumers == 2 && pick(0, 1);
    c.tile.unroll = 1 << pick(0, 2);
    c.tile.moreRegisters = c.tile.consumers > 1 && pick(0, 1);
    c.tile.blocks = static_cast<int>(pick(1, 2));
    c.tile.stages = static_cast<int>(pick(2, 6));
    c.tile.cluster = turned ? 1 : static_cast<int>(pick(1, 2));
    c.tile.groupRows = static_cast<int>(pick(1, 9));
    c.tile.buffers = static_cast<int>(pick(1, 4));
    c.tile.blocksPerSm = c.tile.consumers == 1 ? static_cast<int>(pick(1, 2)) : 1;
    if (cost::gemmRefusal(c.shape(), c.tile, machine).empty())
      out.push_back(c);
  }
  return out;
}

//===--------------------------------------------------------------------------------------------------------------===//
// Time
//===--------------------------------------------------------------------------------------------------------------===//

/// C = A B^T in bf16 or f16, row-major, by cublasGemmEx.
class CuBlas {
public:
  CuBlas() {
    const char *path = std::getenv("RIDGELINE_CUBLAS");
    void *library = path ? ::dlopen(path, RTLD_NOW | RTLD_GLOBAL) : nullptr;
    if (path && !library)
      std::fprintf(stderr, "%s\n", ::dlerror());
    if (!library)
      return;
    auto create = reinterpret_cast<int (*)(void **)>(::dlsym(library, "cublasCreate_v2"));
    setStream = reinterpret_cast<int (*)(void *, void *)>(::dlsym(library, "cublasSetStream_v2"));
    gemm = reinterpret_cast<Gemm>(::dlsym(library, "cublasGemmEx"));
    if (!create || !setStream || !gemm || create(&handle) != 0)
      handle = nullptr;
  }
  bool can(const GemmCase &c) const { return handle && c.batches() == 1 && dtypeSize(c.type) == 2; }
  int run(const GemmCase &c, Buffers &b, void *stream) {
    setStream(handle, stream);
    float one = 1, zero = 0;
    constexpr int bf16 = 14, f16 = 2, computeF32 = 68; // CUDA_R_16BF, CUDA_R_16F, CUBLAS_COMPUTE_32F
    int t = c.type == DType::BF16 ? bf16 : f16, m = static_cast<int>(c.m), n = static_cast<int>(c.n),
        k = static_cast<int>(c.k);
    int status = 0;
    for (int p = 0; p < c.products(); ++p)
      status |= gemm(handle, c.bKMajor, !c.aKMajor, n, m, k, &one, b.inputs[static_cast<size_t>(1 + p)], t,
                     c.bKMajor ? k : n, b.inputs[0], t, c.aKMajor ? k : m, &zero, b.outputs[0], t, n, computeF32, -1);
    return status;
  }

private:
  using Gemm = int (*)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                       const void *, void *, int, int, int, int);
  void *handle = nullptr;
  int (*setStream)(void *, void *) = nullptr;
  Gemm gemm = nullptr;
};

/// Median microseconds of each case of one shape, and of the library where it has one (else 0), all in turn, round by round.
Result<std::vector<double>> timeAll(std::vector<Built> &group, CuBlas &blas, CudaStream &stream, double seconds) {
  const GemmCase &first = group.front().c;
  RL_ASSIGN(Buffers buffers, allocate(group.front().package));
  std::vector<std::unique_ptr<Module>> modules;
  for (Built &b : group) {
    RL_ASSIGN(auto m, makeModule(b.package));
    modules.push_back(std::move(m));
  }
  size_t variants = group.size() + (blas.can(first) ? 1 : 0);
  RL_ASSIGN(CudaEvent start, CudaEvent::create());
  RL_ASSIGN(CudaEvent end, CudaEvent::create());
  auto once = [&](size_t v) -> Status {
    if (v < modules.size())
      return modules[v]->run(buffers.inputs.data(), buffers.outputs.data(), stream.handle());
    return blas.run(first, buffers, stream.handle()) == 0 ? Status() : Status(deviceError("cublasGemmEx failed"));
  };
  auto measure = [&](size_t v, int runs) -> Result<double> {
    RL_TRY(start.record(stream.handle()));
    for (int r = 0; r < runs; ++r)
      RL_TRY(once(v));
    RL_TRY(end.record(stream.handle()));
    RL_ASSIGN(double us, CudaEvent::elapsedMicroseconds(start, end));
    return us / runs;
  };
  std::vector<std::vector<double>> times(variants);
  for (size_t v = 0; v < variants; ++v)
    RL_TRY(measure(v, 2));
  RL_ASSIGN(double guess, measure(0, 5));
  // Long enough that the card's power settles, several rounds all the same.
  int runs = std::max(2, static_cast<int>(std::min(4000.0, seconds * 1e6 / 5 / static_cast<double>(variants)) / guess));
  int rounds = std::max(5, static_cast<int>(seconds * 1e6 / (guess * runs * static_cast<double>(variants))));
  for (int r = 0; r < rounds; ++r)
    for (size_t v = 0; v < variants; ++v) {
      size_t which = (v + static_cast<size_t>(r)) % variants;
      RL_ASSIGN(double us, measure(which, runs));
      times[which].push_back(us);
    }
  std::vector<double> out;
  for (std::vector<double> &x : times) {
    std::sort(x.begin(), x.end());
    out.push_back(x[x.size() / 2]);
  }
  if (variants == group.size())
    out.push_back(0);
  return out;
}

double predicted(const GemmCase &c) {
  auto machine = *cost::findTarget("h200");
  return cost::predictGemm(c.shape(), c.tile, machine).seconds * 1e6;
}

Status timeShape(std::vector<Built> &group, CuBlas &blas, CudaStream &stream, double seconds) {
  RL_ASSIGN(std::vector<double> times, timeAll(group, blas, stream, seconds));
  const GemmCase &first = group.front().c;
  double library = times.back(), best = *std::min_element(times.begin(), times.end() - 1);
  std::string shape = first.str().substr(0, first.str().find('('));
  if (library > 0)
    std::printf("%-84s %9.2f us %7.1f TFLOP/s\n", ("library " + shape).c_str(), library,
                first.flops() / library * 1e-6);
  for (size_t v = 0; v < group.size(); ++v) {
    std::printf("%-84s %9.2f us %7.1f TFLOP/s, %.3f of the best, predicted %.2f", group[v].c.str().c_str(), times[v],
                group[v].c.flops() / times[v] * 1e-6, best / times[v], predicted(group[v].c));
    if (library > 0)
      std::printf(", %.3f of the library", library / times[v]);
    std::printf("\n");
  }
  return {};
}

bool sameShape(const GemmCase &a, const GemmCase &b) {
  return a.m == b.m && a.n == b.n && a.k == b.k && a.epilogue == b.epilogue && a.type == b.type &&
         a.promotes == b.promotes && a.scaleRows == b.scaleRows && a.batch == b.batch && a.aKMajor == b.aKMajor &&
         a.bKMajor == b.bKMajor && a.left == b.left;
}

/// Shapes with what the model chooses for them, and tiles to set beside it.
std::vector<GemmCase> timedList() {
  using T = cost::GemmTile;
  using E = GemmCase::Epilogue;
  auto machine = *cost::findTarget("h200");
  std::vector<GemmCase> out;
  auto addCase = [&](GemmCase c, const std::vector<T> &others) {
    std::vector<T> tiles;
    for (const cost::GemmCandidate &k : cost::chooseGemmTiles(c.shape(), machine, 2))
      tiles.push_back(k.tile);
    tiles.insert(tiles.end(), others.begin(), others.end());
    for (const T &t : tiles) {
      c.tile = t;
      out.push_back(c);
    }
  };
  auto add = [&](int64_t m, int64_t n, int64_t k, E e = E::Plain, DType t = DType::BF16,
                 const std::vector<T> &others = {}) {
    GemmCase c;
    c.m = m;
    c.n = n;
    c.k = k;
    c.epilogue = e;
    c.type = t;
    addCase(c, others);
  };
  const T wide{.tileN = 256, .stages = 4, .buffers = 2, .unroll = 4};
  add(4096, 4096, 4096, E::Plain, DType::BF16, {wide});
  add(8192, 8192, 8192, E::Plain, DType::BF16, {wide});
  add(512, 11008, 4096);
  add(2048, 2048, 2048);
  add(1024, 1024, 1024);
  add(128, 4096, 4096);
  add(16, 11008, 4096);
  add(1796, 1796, 4096);
  add(1792, 1792, 4096);
  add(4096, 4096, 4096, E::BiasGelu);
  add(8192, 8192, 8192, E::BiasGelu);
  add(512, 11008, 4096, E::BiasGelu);
  add(4096, 4096, 512, E::BiasGelu, DType::BF16,
      {{.tileN = 128, .blocks = 2, .alternate = true, .stages = 5, .buffers = 2, .unroll = 2, .moreRegisters = true},
       {.tileN = 128, .blocks = 2, .alternate = true, .stages = 5, .buffers = 2, .unroll = 4, .moreRegisters = true}});
  add(4096, 4096, 512);
  add(4096, 4096, 4096, E::BiasResidual);
  add(8192, 8192, 8192, E::BiasResidual);
  add(4096, 11008, 4096, E::SwiGlu);
  add(512, 11008, 4096, E::SwiGlu);
  add(4096, 4096, 4096, E::TwoOutputs);
  add(4096, 4096, 4096, E::Plain, DType::F8E4M3);
  add(8192, 8192, 8192, E::Plain, DType::F8E4M3);
  add(512, 11008, 4096, E::Plain, DType::F8E4M3);
  add(4096, 4096, 4096, E::Plain, DType::F32);
  for (bool a : {false, true})
    for (bool b : {false, true})
      if (!a || !b) {
        GemmCase c;
        c.m = c.n = c.k = 4096;
        c.aKMajor = a;
        c.bKMajor = b;
        addCase(c, {});
      }
  for (GemmCase::Left left : {GemmCase::Affine, GemmCase::FromF32, GemmCase::Gated, GemmCase::Exp}) {
    GemmCase c;
    c.m = c.n = c.k = 4096;
    c.left = left;
    addCase(c, {});
  }
  GemmCase batched;
  batched.batch = {32};
  batched.m = batched.n = 2048;
  batched.k = 128;
  addCase(batched, {});
  batched.k = 2048;
  batched.n = 128;
  batched.bKMajor = false;
  addCase(batched, {});
  return out;
}

/// One shape with many tiles: what the model chooses and how it compares. For fitting its constants.
std::vector<GemmCase> sweepList() {
  using T = cost::GemmTile;
  using E = GemmCase::Epilogue;
  std::vector<T> tiles;
  auto form = [&](int consumers, int blocks, bool alternate, int perSm, std::vector<int> widths) {
    for (int n : widths)
      tiles.push_back(
          {.tileN = n, .consumers = consumers, .blocks = blocks, .alternate = alternate, .blocksPerSm = perSm});
  };
  form(2, 1, false, 1, {32, 64, 96, 128, 144, 160, 168, 176, 192, 256});
  form(2, 2, false, 1, {64, 96, 128, 168});
  form(2, 2, true, 1, {64, 96, 112, 128});
  form(2, 1, true, 1, {64, 128, 192, 256});
  form(3, 1, false, 1, {96, 128, 144, 176});
  form(1, 1, false, 1, {32, 64, 128, 256});
  form(1, 1, false, 2, {64, 128});
  form(1, 2, false, 1, {64, 128});
  for (int n : {128, 144, 160, 176})
    tiles.push_back({.tileN = n, .cluster = 2});
  struct Shape {
    int64_t batch, m, n, k;
    E epilogue;
    DType type;
    bool promotes = false;
    int64_t scaleRows = 0;
    bool bKMajor = true;
  };
  auto machine = *cost::findTarget("h200");
  std::vector<GemmCase> out;
  for (const Shape &s : {Shape{1, 4096, 4096, 4096, E::Plain, DType::BF16},
                         {1, 8192, 4096, 1024, E::Plain, DType::BF16},
                         {1, 2048, 2048, 2048, E::Plain, DType::BF16},
                         {1, 1024, 1024, 1024, E::Plain, DType::BF16},
                         {1, 512, 11008, 4096, E::Plain, DType::BF16},
                         {1, 128, 4096, 4096, E::Plain, DType::BF16},
                         {1, 1796, 1792, 4096, E::Plain, DType::BF16},
                         {32, 2048, 2048, 128, E::Plain, DType::BF16},
                         {64, 1024, 1024, 128, E::Plain, DType::BF16},
                         {1, 64, 11008, 4096, E::Plain, DType::BF16},
                         {1, 4096, 4096, 4096, E::BiasGelu, DType::BF16},
                         {1, 4096, 4096, 512, E::BiasGelu, DType::BF16},
                         {1, 4096, 4096, 4096, E::Plain, DType::F8E4M3},
                         {1, 4096, 4096, 4096, E::Plain, DType::F8E4M3, true},
                         {1, 8192, 8192, 8192, E::Plain, DType::F8E4M3, true},
                         {1, 512, 11008, 4096, E::Plain, DType::F8E4M3, true},
                         {1, 4096, 7168, 2048, E::Plain, DType::F8E4M3, true, 128},
                         {1, 8192, 4096, 7168, E::Plain, DType::F8E4M3, true, 128},
                         {1, 8192, 8192, 8192, E::Plain, DType::I8},
                         {1, 8192, 8192, 8192, E::Plain, DType::BF16, false, 0, false},
                         {1, 4096, 4096, 4096, E::Plain, DType::BF16, false, 0, false},
                         {1, 512, 11008, 4096, E::Plain, DType::BF16, false, 0, false},
                         {1, 1796, 1792, 4096, E::Plain, DType::BF16, false, 0, false},
                         {1, 4096, 4096, 4104, E::Plain, DType::BF16},
                         {1, 512, 11008, 4104, E::Plain, DType::BF16}}) {
    GemmCase c;
    c.m = s.m;
    c.n = s.n;
    c.k = s.k;
    if (s.batch > 1)
      c.batch = {s.batch};
    c.epilogue = s.epilogue;
    c.type = s.type;
    c.promotes = s.promotes;
    c.scaleRows = s.scaleRows;
    c.bKMajor = s.bKMajor;
    std::vector<T> all;
    for (const cost::GemmCandidate &k : cost::chooseGemmTiles(c.shape(), machine, 4))
      all.push_back(k.tile);
    for (T t : tiles)
      if (cost::completeGemmTile(c.shape(), t, machine) && std::find(all.begin(), all.end(), t) == all.end())
        all.push_back(t);
    // Where stores are most of the work: the order of the tiles, and how many stores are on their way.
    constexpr double kNear = 1.2; // of the model's best
    auto isNear = [&](const T &t) {
      return cost::predictGemm(c.shape(), t, machine).seconds <
             kNear * cost::predictGemm(c.shape(), all[0], machine).seconds;
    };
    for (size_t i = 0, models = all.size(); s.k <= 128 && i < models; ++i)
      for (int groupRows : {1, 16})
        for (int buffers : {all[i].buffers, all[i].chunks()}) {
          T t = all[i];
          if (!isNear(t))
            continue;
          t.groupRows = groupRows;
          t.buffers = buffers;
          while (t.stages > 2 && !cost::gemmRefusal(c.shape(), t, machine).empty())
            --t.stages;
          if (cost::gemmRefusal(c.shape(), t, machine).empty() && std::find(all.begin(), all.end(), t) == all.end())
            all.push_back(t);
        }
    for (const T &t : all) {
      c.tile = t;
      c.name = "groups of " + std::to_string(t.groupRows);
      out.push_back(c);
    }
  }
  return out;
}

} // namespace

int main(int argc, char **argv) {
  bool time = false, verbose = false, sweep = false;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  int seeds = 100;
  double seconds = 0.4;
  std::string filter;
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    if (a == "--time")
      time = true;
    else if (a == "--sweep")
      time = sweep = true;
    else if (a == "--verbose")
      verbose = true;
    else if (a == "--seeds" && i + 1 < argc)
      seeds = std::atoi(argv[++i]);
    else if (a == "--seconds" && i + 1 < argc)
      seconds = std::atof(argv[++i]);
    else if (a == "--filter" && i + 1 < argc)
      filter = argv[++i];
    else {
      std::fprintf(stderr,
                   "usage: gpu_gemm_test [--verbose] [--seeds N] [--filter TEXT] [--time | --sweep [--seconds S]]\n");
      return 1;
    }
  }
  auto device = currentCudaDevice();
  auto stream = CudaStream::create();
  if (!device || !stream) {
    std::fprintf(stderr, "this test needs a GPU: %s\n", (device ? stream.error() : device.error()).str().c_str());
    return 1;
  }
  if (device->arch() != "sm_90a") {
    std::printf("skipped: %s has no warpgroup products\n", device->name.c_str());
    return 0;
  }
  std::vector<GemmCase> cases = sweep ? sweepList() : time ? timedList() : gemmCases();
  if (!time)
    for (GemmCase &c : randomCases(seeds, 7))
      cases.push_back(c);
  std::erase_if(cases, [&](const GemmCase &c) { return c.str().find(filter) == std::string::npos; });
  std::vector<Built> all = build(cases, !time);
  int passed = 0, failed = 0;
  if (time) {
    CuBlas blas;
    std::vector<Built> group;
    auto flush = [&] {
      if (group.empty())
        return;
      if (Status s = timeShape(group, blas, *stream, seconds); !s) {
        std::printf("FAILED %s: %s\n", group.front().c.str().c_str(), s.error().str().c_str());
        ++failed;
      } else {
        ++passed;
      }
      group.clear();
    };
    for (Built &b : all) {
      if (!b.error.empty()) {
        std::printf("refused %s: %s\n", b.c.str().c_str(), b.error.c_str());
        continue;
      }
      if (!group.empty() && !sameShape(group.front().c, b.c))
        flush();
      group.push_back(std::move(b));
    }
    flush();
  } else {
    for (Built &b : all) {
      if (verbose)
        std::printf("%s\n", b.c.str().c_str());
      Result<std::string> wrong = b.error.empty() ? check(b, *stream) : Result<std::string>(b.error);
      std::string why = wrong ? *wrong : wrong.error().str();
      (why.empty() ? passed : failed) += 1;
      if (!why.empty())
        std::printf("FAILED %s: %s\n", b.c.str().c_str(), why.c_str());
      if (!wrong)
        break; // an error of the driver stays
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0 || passed == 0;
}
