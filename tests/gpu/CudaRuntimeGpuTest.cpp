// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The CUDA runtime on a real device, with kernels written by hand in PTX. A program by itself, no part of ctest;
// without a GPU it fails.
#include "ridgeline.h"
#include "runtime/CApi.h"
#include "runtime/Module.h"
#include "runtime/cuda/Cuda.h"
#include "runtime/cuda/Driver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <numeric>
#include <thread>
#include <vector>

using namespace rl;

namespace {

// add: c = a + b, one f32 a thread. add4: four, with 16-byte accesses, which fault where a pointer is not aligned to
// them. slow: as add, but each thread waits 20 ms first. fault: writes to address 8. cluster: the blocks in this
// block's cluster. shared: one f32 a thread through 100,000 bytes of dynamic shared memory.
const char *kPtx = R"(.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];

.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c) {
  .reg .b32 %r<5>; .reg .b64 %rd<8>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd4, %r4, 4;
  add.u64 %rd5, %rd1, %rd4; add.u64 %rd6, %rd2, %rd4; add.u64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6];
  add.rn.f32 %f3, %f1, %f2;
  st.global.f32 [%rd7], %f3;
  ret;
}

.visible .entry add4(.param .u64 a, .param .u64 b, .param .u64 c) {
  .reg .b32 %r<5>; .reg .b64 %rd<8>; .reg .f32 %f<9>;
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd4, %r4, 16;
  add.u64 %rd5, %rd1, %rd4; add.u64 %rd6, %rd2, %rd4; add.u64 %rd7, %rd3, %rd4;
  ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd5]; ld.global.v4.f32 {%f5, %f6, %f7, %f8}, [%rd6];
  add.rn.f32 %f1, %f1, %f5; add.rn.f32 %f2, %f2, %f6; add.rn.f32 %f3, %f3, %f7; add.rn.f32 %f4, %f4, %f8;
  st.global.v4.f32 [%rd7], {%f1, %f2, %f3, %f4};
  ret;
}

.visible .entry slow(.param .u64 a, .param .u64 b, .param .u64 c) {
  .reg .b32 %r<5>; .reg .b64 %rd<12>; .reg .f32 %f<4>; .reg .pred %p<2>;
  mov.u64 %rd8, %globaltimer;
WAIT:
  mov.u64 %rd9, %globaltimer;
  sub.u64 %rd10, %rd9, %rd8;
  setp.lt.u64 %p1, %rd10, 20000000;
  @%p1 bra WAIT;
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd4, %r4, 4;
  add.u64 %rd5, %rd1, %rd4; add.u64 %rd6, %rd2, %rd4; add.u64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6];
  add.rn.f32 %f3, %f1, %f2;
  st.global.f32 [%rd7], %f3;
  ret;
}

.visible .entry fault(.param .u64 a, .param .u64 b, .param .u64 c) {
  .reg .b64 %rd<2>; .reg .f32 %f<2>;
  mov.u64 %rd1, 8; mov.f32 %f1, 0f00000000;
  st.global.f32 [%rd1], %f1;
  ret;
}

.visible .entry shared(.param .u64 a, .param .u64 b, .param .u64 c) {
  .reg .b32 %r<6>; .reg .b64 %rd<8>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd4, %r4, 4;
  add.u64 %rd5, %rd1, %rd4; add.u64 %rd6, %rd2, %rd4; add.u64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6];
  add.rn.f32 %f3, %f1, %f2;
  mov.u32 %r5, dynamic;
  add.u32 %r5, %r5, 99000;
  shl.b32 %r3, %r3, 2;
  add.u32 %r5, %r5, %r3;
  st.shared.f32 [%r5], %f3;
  bar.sync 0;
  ld.shared.f32 %f3, [%r5];
  st.global.f32 [%rd7], %f3;
  ret;
}
)";

// As add, times the number of blocks in the cluster.
const char *kClusterPtx = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry cluster(.param .u64 a, .param .u64 b, .param .u64 c) {
  .reg .b32 %r<6>; .reg .b64 %rd<8>; .reg .f32 %f<5>;
  ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mul.wide.u32 %rd4, %r4, 4;
  add.u64 %rd5, %rd1, %rd4; add.u64 %rd6, %rd2, %rd4; add.u64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5]; ld.global.f32 %f2, [%rd6];
  add.rn.f32 %f3, %f1, %f2;
  mov.u32 %r5, %cluster_nctaid.x;
  cvt.rn.f32.u32 %f4, %r5;
  mul.rn.f32 %f3, %f3, %f4;
  st.global.f32 [%rd7], %f3;
  ret;
}
)";

constexpr int64_t kN = 1024, kBytes = kN * 4;

PackageLaunch launchOf(const std::string &kernel, std::vector<uint32_t> args) {
  PackageLaunch l;
  l.kernel = kernel;
  l.args = std::move(args);
  l.grid = {static_cast<uint32_t>(kN / 128), 1, 1};
  l.block = {128, 1, 1};
  l.label = kernel + ":" + std::to_string(l.args.back());
  if (kernel == "add4") {
    l.grid = {static_cast<uint32_t>(kN / 512), 1, 1};
    l.align = 16;
    l.unalignedKernel = "add";
    l.unalignedGrid = {static_cast<uint32_t>(kN / 128), 1, 1};
    l.unalignedBlock = {128, 1, 1};
  }
  return l;
}

/// y = x + w * launches through two places of the arena in turn.
Package chain(int launches, const std::string &kernel = "add4") {
  Package p;
  p.name = "chain";
  p.target = "cuda";
  p.arch = kernel == "cluster" ? "sm_90" : "sm_80";
  TensorType t{DType::F32, {kN}};
  p.inputs = {{"x", t}};
  p.parameters = {{"w", t}};
  p.outputs = {{"y", t}};
  p.buffers = {{PackageBuffer::Input, 0, 0, kBytes},
               {PackageBuffer::Parameter, 0, 0, kBytes},
               {PackageBuffer::Output, 0, 0, kBytes}};
  if (launches > 1) {
    p.buffers.push_back({PackageBuffer::Arena, 0, 0, kBytes});
    p.buffers.push_back({PackageBuffer::Arena, 0, kBytes, kBytes});
    p.arenaBytes = 2 * kBytes;
  }
  for (int i = 0; i < launches; ++i) {
    uint32_t from = i == 0 ? 0 : 3 + static_cast<uint32_t>(i + 1) % 2;
    uint32_t to = i + 1 == launches ? 2 : 3 + static_cast<uint32_t>(i) % 2;
    p.launches.push_back(launchOf(kernel, {from, 1, to}));
  }
  p.ptx = kernel == "cluster" ? kClusterPtx : kPtx;
  return p;
}

std::string why(const Status &s) { return s ? "" : s.error().str(); }

/// Functions of the driver that a caller of ours would use, and we do not.
template <class F> F driverFunction(const char *name) {
  static void *library = ::dlopen("libcuda.so.1", RTLD_NOW);
  void *f = library ? ::dlsym(library, name) : nullptr;
  EXPECT_NE(f, nullptr) << name;
  return reinterpret_cast<F>(f);
}

class Gpu : public ::testing::Test {
protected:
  void SetUp() override {
    host.resize(kN + 8);
    std::iota(host.begin(), host.end(), 0.0f);
    weights.assign(kN, 2.0f);
    auto made = CudaStream::create();
    ASSERT_TRUE(made);
    stream = *made;
    for (CudaMemory *m : {&x, &y}) {
      auto memory = CudaMemory::allocate(kBytes + 32);
      ASSERT_TRUE(memory);
      *m = *memory;
    }
    ASSERT_TRUE(x.upload(host.data(), kBytes + 32));
  }
  std::unique_ptr<Module> make(Package p) {
    auto m = makeModule(std::move(p));
    EXPECT_TRUE(m) << (m ? "" : m.error().str());
    if (!m)
      return nullptr;
    Status s = (*m)->bind("w", weights.data(), kBytes);
    EXPECT_TRUE(s) << why(s);
    return s ? *std::move(m) : nullptr;
  }
  Status enqueue(Module &m, int dx = 0, int dy = 0) { return enqueueOn(m, stream.handle(), dx, dy); }
  Status enqueueOn(Module &m, void *on, int dx = 0, int dy = 0) {
    const void *in[] = {static_cast<float *>(x.data()) + dx};
    void *out[] = {static_cast<float *>(y.data()) + dy};
    return m.run(in, out, on);
  }
  void clear() {
    ASSERT_TRUE(y.fill(0xff));
    ASSERT_TRUE(cudaSynchronize());
  }
  void expectResult(float perElement, int dx = 0, int dy = 0, float factor = 1) {
    Status s = stream.synchronize();
    ASSERT_TRUE(s) << why(s);
    std::vector<float> out(kN + 8);
    ASSERT_TRUE(y.download(out.data(), kBytes + 32));
    for (int i = 0; i < kN; ++i)
      ASSERT_EQ(out[static_cast<size_t>(i + dy)], (host[static_cast<size_t>(i + dx)] + perElement) * factor) << i;
  }

  std::vector<float> host, weights;
  CudaStream stream;
  CudaMemory x, y;
};

} // namespace

TEST_F(Gpu, Device) {
  auto d = currentCudaDevice();
  ASSERT_TRUE(d);
  std::printf("device: %s, %s, %d multiprocessors, %lld MiB, driver %d\n", d->name.c_str(), d->arch().c_str(), d->sms,
              static_cast<long long>(d->memoryBytes >> 20), d->driverVersion);
  EXPECT_GE(d->major, 8);
  EXPECT_GT(d->sms, 0);
  EXPECT_GT(d->l2Bytes, 0);
  EXPECT_GE(d->sharedPerBlock, 100000);
  EXPECT_GT(d->memoryBusBits, 0);
}

TEST_F(Gpu, EveryLengthOfPlanAndEveryAlignment) {
  for (int launches : {1, 2, 3, 8}) {
    auto m = make(chain(launches));
    ASSERT_TRUE(m);
    for (int dx : {0, 1, 4})
      for (int dy : {0, 2, 4}) {
        clear();
        Status s = enqueue(*m, dx, dy);
        ASSERT_TRUE(s) << why(s);
        expectResult(2.0f * static_cast<float>(launches), dx, dy);
      }
  }
}

TEST_F(Gpu, DefaultStreams) {
  for (int launches : {1, 4}) {
    auto m = make(chain(launches));
    ASSERT_TRUE(m);
    for (void *s : {static_cast<void *>(nullptr), reinterpret_cast<void *>(1), reinterpret_cast<void *>(2)}) {
      clear();
      Status r = enqueueOn(*m, s);
      ASSERT_TRUE(r) << why(r);
      ASSERT_TRUE(cudaSynchronize());
      expectResult(2.0f * static_cast<float>(launches));
    }
  }
}

TEST_F(Gpu, RunOnlyEnqueues) {
  for (int launches : {1, 4}) {
    auto m = make(chain(launches, "slow"));
    ASSERT_TRUE(m && enqueue(*m));
    ASSERT_TRUE(stream.synchronize());
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 5; ++i)
      ASSERT_TRUE(enqueue(*m));
    double enqueued = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ASSERT_TRUE(stream.synchronize());
    double ended = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(enqueued, 0.015);
    EXPECT_GT(ended, 0.09 * launches);
  }
}

TEST_F(Gpu, NothingIsAllocatedAfterTheFirstRun) {
  auto m = make(chain(4));
  ASSERT_TRUE(m && enqueue(*m) && stream.synchronize());
  auto before = cudaMemoryInfo();
  for (int i = 0; i < 200; ++i)
    ASSERT_TRUE(enqueue(*m, i % 5, i % 3));
  ASSERT_TRUE(stream.synchronize());
  auto after = cudaMemoryInfo();
  ASSERT_TRUE(before && after);
  EXPECT_EQ(before->free, after->free);
}

TEST_F(Gpu, RunsOnTwoStreamsKeepTheArenaApart) {
  auto other = CudaStream::create();
  ASSERT_TRUE(other);
  auto memory = CudaMemory::allocate(kBytes);
  ASSERT_TRUE(memory);
  auto m = make(chain(3, "slow"));
  ASSERT_TRUE(m);
  ASSERT_TRUE(enqueue(*m));
  // A second run, of other values, while the first has hardly begun.
  const void *in[] = {static_cast<float *>(x.data()) + 8 - 4};
  void *out[] = {memory->data()};
  ASSERT_TRUE(m->run(in, out, other->handle()));
  ASSERT_TRUE(other->synchronize());
  expectResult(6);
  std::vector<float> got(kN);
  ASSERT_TRUE(memory->download(got.data(), kBytes));
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(got[i], host[i + 4] + 6) << i;
}

TEST_F(Gpu, TheCallerMayCapture) {
  auto begin = driverFunction<int (*)(void *, int)>("cuStreamBeginCapture_v2");
  auto end = driverFunction<int (*)(void *, void **)>("cuStreamEndCapture");
  auto instantiate = driverFunction<int (*)(void **, void *, unsigned long long)>("cuGraphInstantiateWithFlags");
  auto launch = driverFunction<int (*)(void *, void *)>("cuGraphLaunch");
  auto destroy = driverFunction<int (*)(void *)>("cuGraphExecDestroy");
  auto destroyGraph = driverFunction<int (*)(void *)>("cuGraphDestroy");
  auto scope = cu::ContextScope::enter(**cu::driver());
  ASSERT_TRUE(scope);
  for (int mode : {0, 1, 2}) // global, thread local, relaxed
    for (int launches : {1, 4})
      for (bool first : {true, false}) {
        auto m = make(chain(launches));
        ASSERT_TRUE(m);
        if (!first)
          ASSERT_TRUE(enqueue(*m) && stream.synchronize());
        clear();
        ASSERT_EQ(begin(stream.handle(), mode), 0);
        Status s = enqueue(*m);
        EXPECT_TRUE(s) << why(s);
        void *graph = nullptr, *exec = nullptr;
        ASSERT_EQ(end(stream.handle(), &graph), 0) << "mode " << mode << " launches " << launches << " first " << first;
        ASSERT_EQ(instantiate(&exec, graph, 0), 0);
        ASSERT_EQ(launch(exec, stream.handle()), 0);
        expectResult(2.0f * static_cast<float>(launches));
        clear();
        ASSERT_EQ(launch(exec, stream.handle()), 0);
        expectResult(2.0f * static_cast<float>(launches));
        // And the module runs by itself again.
        clear();
        ASSERT_TRUE(enqueue(*m, 1));
        expectResult(2.0f * static_cast<float>(launches), 1);
        destroy(exec);
        destroyGraph(graph);
      }
}

TEST_F(Gpu, ALoadInTheMiddleOfACapture) {
  auto begin = driverFunction<int (*)(void *, int)>("cuStreamBeginCapture_v2");
  auto end = driverFunction<int (*)(void *, void **)>("cuStreamEndCapture");
  auto destroyGraph = driverFunction<int (*)(void *)>("cuGraphDestroy");
  Package p = chain(4);
  p.parameters.clear(); // so that the first thing the module does is run
  p.buffers[1] = {PackageBuffer::Input, 0, 0, kBytes};
  auto m = makeModule(p);
  ASSERT_TRUE(m);
  ASSERT_EQ(begin(stream.handle(), 0), 0);
  Status s = enqueue(**m);
  EXPECT_TRUE(s) << why(s);
  void *graph = nullptr;
  ASSERT_EQ(end(stream.handle(), &graph), 0);
  destroyGraph(graph);
}

TEST_F(Gpu, BindTakesDeviceMemory) {
  auto m = makeModule(chain(1));
  ASSERT_TRUE(m);
  {
    auto memory = CudaMemory::allocate(kBytes);
    ASSERT_TRUE(memory && memory->upload(weights.data(), kBytes));
    ASSERT_TRUE((*m)->bind("w", memory->data(), kBytes));
  } // released
  clear();
  ASSERT_TRUE(enqueue(**m));
  expectResult(2);
  // Bound again while runs are under way: they keep the old values.
  auto slow = make(chain(1, "slow"));
  ASSERT_TRUE(slow && enqueue(*slow));
  std::vector<float> other(kN, 5.0f);
  ASSERT_TRUE(slow->bind("w", other.data(), kBytes));
  expectResult(2);
  ASSERT_TRUE(enqueue(*slow));
  expectResult(5);
}

TEST_F(Gpu, CubinsAndWhatStandsInForThem) {
  auto cubin = assemblePtx(kPtx);
  ASSERT_TRUE(cubin) << cubin.error().str();
  Package p = chain(3);
  p.cubin = *cubin;
  p.ptx.clear();
  auto m = make(p);
  ASSERT_TRUE(m && enqueue(*m));
  expectResult(6);
  // Machine code that this device does not take: the PTX is used.
  p.ptx = kPtx;
  p.cubin = "\x7f"
            "ELF and then nothing of use";
  p.cubin.resize(4096);
  m = make(p);
  ASSERT_TRUE(m && enqueue(*m));
  expectResult(6);
}

TEST_F(Gpu, BrokenPtxComesWithALog) {
  Package p = chain(1);
  p.ptx += "\nthis is not PTX\n";
  auto m = makeModule(p);
  ASSERT_TRUE(m);
  Status s = (*m)->bind("w", weights.data(), kBytes);
  ASSERT_FALSE(s);
  std::printf("as expected: %s\n", why(s).c_str());
  EXPECT_NE(why(s).find("CUDA_ERROR_INVALID_PTX"), std::string::npos);
  EXPECT_NE(why(s).find("line"), std::string::npos);
  auto cubin = assemblePtx(p.ptx);
  ASSERT_FALSE(cubin);
  EXPECT_EQ(cubin.error().code, Code::Invalid);
  EXPECT_NE(cubin.error().message.find("line"), std::string::npos);
}

TEST_F(Gpu, LargeSharedMemory) {
  for (int launches : {1, 3}) {
    Package p = chain(launches, "shared");
    for (auto &l : p.launches)
      l.sharedBytes = 100000;
    auto m = make(p);
    ASSERT_TRUE(m);
    clear();
    Status s = enqueue(*m);
    ASSERT_TRUE(s) << why(s);
    expectResult(2.0f * static_cast<float>(launches));
  }
}

TEST_F(Gpu, Clusters) {
  if (currentCudaDevice()->major < 9)
    GTEST_SKIP() << "clusters come with compute capability 9.0";
  for (unsigned blocks : {2u, 8u}) {
    Package p = chain(1, "cluster");
    p.launches[0].cluster = {blocks, 1, 1};
    auto m = make(p);
    ASSERT_TRUE(m);
    clear();
    Status s = enqueue(*m);
    ASSERT_TRUE(s) << why(s);
    expectResult(2, 0, 0, static_cast<float>(blocks));
  }
  // In a graph, through a change of pointers.
  Package p = chain(3, "cluster");
  for (auto &l : p.launches)
    l.cluster = {2, 1, 1};
  auto m = make(p);
  ASSERT_TRUE(m);
  for (int dx : {0, 4, 1}) {
    clear();
    ASSERT_TRUE(enqueue(*m, dx));
    ASSERT_TRUE(stream.synchronize());
    std::vector<float> out(kN);
    ASSERT_TRUE(y.download(out.data(), kBytes));
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], (((host[i + static_cast<size_t>(dx)] + 2) * 2 + 2) * 2 + 2) * 2) << i;
  }
}

TEST_F(Gpu, TheCInterface) {
  rl_module *m = wrapModule(*makeModule(chain(2)));
  const void *in[] = {x.data()};
  void *out[] = {y.data()};
  EXPECT_EQ(rl_run(m, in, out, stream.handle()), RL_USAGE);
  ASSERT_EQ(rl_bind(m, "w", weights.data(), kBytes), RL_OK) << rl_last_error();
  clear();
  ASSERT_EQ(rl_run(m, in, out, stream.handle()), RL_OK) << rl_last_error();
  rl_unload(m); // while it runs: it waits
  expectResult(4);
}

TEST_F(Gpu, ModulesOnSeveralThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      auto m = makeModule(chain(1 + t % 4));
      auto s = CudaStream::create();
      auto result = CudaMemory::allocate(kBytes);
      if (!m || !s || !result || !(*m)->bind("w", weights.data(), kBytes))
        return void(++wrong);
      std::vector<float> got(kN);
      for (int i = 0; i < 100; ++i) {
        const void *in[] = {static_cast<float *>(x.data()) + i % 8};
        void *out[] = {result->data()};
        wrong += !(*m)->run(in, out, s->handle()) || !s->synchronize() || !result->download(got.data(), kBytes);
        wrong += got[7] != host[static_cast<size_t>(7 + i % 8)] + 2.0f * static_cast<float>(1 + t % 4);
      }
    });
  for (auto &t : threads)
    t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Gpu, OverheadOfRun) {
  auto m = make(chain(1));
  ASSERT_TRUE(m && enqueue(*m) && stream.synchronize());
  const cu::Api *api = *cu::driver();
  auto scope = cu::ContextScope::enter(*api); // as a caller has it: a context is current
  ASSERT_TRUE(scope);
  cu::ModuleHandle code = nullptr;
  cu::Function function = nullptr;
  ASSERT_EQ(api->cuModuleLoadDataEx(&code, kPtx, 0, nullptr, nullptr), 0);
  ASSERT_EQ(api->cuModuleGetFunction(&function, code, "add4"), 0);
  cu::DevicePtr a = reinterpret_cast<uintptr_t>(x.data()), b = a, c = reinterpret_cast<uintptr_t>(y.data());
  void *params[] = {&a, &b, &c};
  const void *in[] = {x.data()};
  void *out[] = {y.data()};
  auto measure = [&](auto &&body) { // the best of many batches: host time of one call, us
    double best = 1e9;
    for (int batch = 0; batch < 50; ++batch) {
      EXPECT_TRUE(stream.synchronize());
      auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 200; ++i)
        body();
      best = std::min(
          best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 200);
    }
    return best;
  };
  double bare = measure([&] {
    api->cuLaunchKernel(function, 2, 1, 1, 128, 1, 1, 0, static_cast<cu::Stream>(stream.handle()), params, nullptr);
  });
  rl_module handle{std::move(m)};
  double ours = measure([&] { rl_run(&handle, in, out, stream.handle()); });
  auto four = make(chain(4));
  ASSERT_TRUE(four);
  double graph = measure([&] { (void)four->run(in, out, stream.handle()); });
  double bareFour = measure([&] {
    for (int i = 0; i < 4; ++i)
      api->cuLaunchKernel(function, 2, 1, 1, 128, 1, 1, 0, static_cast<cu::Stream>(stream.handle()), params, nullptr);
  });
  std::printf(
      "host time: cuLaunchKernel %.2f us, rl_run %.2f us; four cuLaunchKernel %.2f us, rl_run of four %.2f us\n", bare,
      ours, bareFour, graph);
  EXPECT_LT(ours - bare, 2.0);
  ASSERT_TRUE(stream.synchronize());
  api->cuModuleUnload(code);
}

// In processes of their own, so that nothing of it stays.
TEST(GpuDeathTest, ContextsOfTheCallersOwn) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto body = [] {
#define CHECK_OR_EXIT(condition)                                                                                       \
  if (!(condition)) {                                                                                                  \
    std::fprintf(stderr, "failed: %s\n", #condition);                                                                  \
    std::_Exit(1);                                                                                                     \
  }
    CHECK_OR_EXIT(cudaAvailable());
    auto createContext = driverFunction<int (*)(cu::Context *, unsigned, int)>("cuCtxCreate_v2");
    auto destroyContext = driverFunction<int (*)(cu::Context)>("cuCtxDestroy_v2");
    auto setCurrent = driverFunction<int (*)(cu::Context)>("cuCtxSetCurrent");
    cu::Context a = nullptr, b = nullptr;
    CHECK_OR_EXIT(createContext(&a, 0, 0) == 0 && createContext(&b, 0, 0) == 0 && setCurrent(a) == 0);
    std::vector<float> host(kN), w(kN, 2.0f), got(kN);
    std::iota(host.begin(), host.end(), 0.0f);
    auto m = makeModule(chain(4));
    CHECK_OR_EXIT(m.ok() && (*m)->bind("w", w.data(), kBytes));
    auto runHere = [&](float weight) {
      auto x = CudaMemory::allocate(kBytes), y = CudaMemory::allocate(kBytes);
      CHECK_OR_EXIT(x.ok() && y.ok() && x->upload(host.data(), kBytes));
      const void *in[] = {x->data()};
      void *out[] = {y->data()};
      Status s = (*m)->run(in, out, nullptr);
      std::fprintf(stderr, "run: %s\n", why(s).c_str());
      CHECK_OR_EXIT(s && cudaSynchronize() && y->download(got.data(), kBytes));
      for (size_t i = 0; i < got.size(); ++i)
        CHECK_OR_EXIT(got[i] == host[i] + 4 * weight);
    };
    runHere(2);
    setCurrent(b); // the parameter follows
    runHere(2);
    std::fill(w.begin(), w.end(), 3.0f);
    CHECK_OR_EXIT((*m)->bind("w", w.data(), kBytes));
    setCurrent(a);
    runHere(3);
    // A context that is destroyed under the module, and another in its place.
    CHECK_OR_EXIT(destroyContext(b) == 0);
    cu::Context c = nullptr;
    CHECK_OR_EXIT(createContext(&c, 0, 0) == 0 && setCurrent(c) == 0);
    CHECK_OR_EXIT((*m)->bind("w", w.data(), kBytes));
    runHere(3);
    CHECK_OR_EXIT(destroyContext(a) == 0);
    CHECK_OR_EXIT(destroyContext(c) == 0);
    std::fprintf(stderr, "all contexts are destroyed\n");
    m->reset();
    std::_Exit(0);
  };
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}

// In a process of its own, too: the context does not survive it.
TEST(GpuDeathTest, AFaultNamesItsKernel) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  auto body = [] {
    auto check = [](bool ok, const char *what, const std::string &text) {
      std::fprintf(stderr, "%s: %s\n", what, text.c_str());
      if (!ok)
        std::_Exit(1);
    };
    auto memory = CudaMemory::allocate(kBytes);
    auto stream = CudaStream::create();
    auto m = makeModule(chain(1, "fault"));
    std::vector<float> w(kN);
    if (!memory || !stream || !m || !(*m)->bind("w", w.data(), kBytes))
      std::_Exit(1);
    const void *in[] = {memory->data()};
    void *out[] = {memory->data()};
    Status s = (*m)->run(in, out, stream->handle());
    check(s.ok(), "run", why(s));
    s = stream->synchronize();
    check(!s && why(s).find("kernel 'fault' (fault:2)") != std::string::npos, "synchronize", why(s));
    s = (*m)->run(in, out, stream->handle());
    check(!s && s.error().code == Code::Device && why(s).find("kernel 'fault' (fault:2)") != std::string::npos,
          "run again", why(s));
    m->reset(); // releasing what a dead context had must not hang or crash
    *memory = CudaMemory();
    *stream = CudaStream();
    std::_Exit(0);
  };
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}

int main(int argc, char **argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!cudaAvailable()) {
    auto device = currentCudaDevice();
    std::fprintf(stderr, "this test needs a GPU: %s\n",
                 device ? "the driver shows no device" : device.error().message.c_str());
    return 1;
  }
  return RUN_ALL_TESTS();
}
