// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The CUDA runtime against a driver that a test can ask and command (tests/gpu/fake): argument marshalling, the choice
// of kernels, graphs, contexts, captures, and what every failure says. The same on a real device: tests/gpu.
#include "tests/gpu/fake/CudaRuntimeFixture.h"

using namespace rl;
using namespace rl::fake;

TEST_F(CudaRuntime, OneKernelGetsItsArguments) {
  auto m = mustMake(chain(1));
  ASSERT_TRUE(m);
  EXPECT_EQ(m->kernelCount(), 1);
  ASSERT_TRUE(m->bind("w", w, kBytes));
  unsigned long long parameter = 0;
  for (auto &[pointer, memory] : control().memory)
    if (memory.bytes == kBytes)
      parameter = pointer;
  Status s = run(*m, 0, 0, stream(0x77));
  ASSERT_TRUE(s) << why(s);
  ASSERT_EQ(control().launches.size(), 1u);
  const fake::Launch &l = control().launches[0];
  EXPECT_EQ(l.kernel, "add");
  EXPECT_EQ(l.grid[0], 2u);
  EXPECT_EQ(l.grid[1], 1u);
  EXPECT_EQ(l.block[0], 128u);
  EXPECT_EQ(l.shared, 0u);
  EXPECT_EQ(l.stream, stream(0x77));
  EXPECT_FALSE(l.graph);
  EXPECT_EQ(l.args, (std::vector<unsigned long long>{reinterpret_cast<uintptr_t>(x), parameter,
                                                     reinterpret_cast<uintptr_t>(y)}));
  expectResult(1);
}

TEST_F(CudaRuntime, ASteadyRunIsOneCallOfTheDriver) {
  cu::Context mine = fakeCuda.makeContext();
  fakeCuda.setCurrent(mine);
  {
    auto m = mustMake(chain(1));
    ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m));
    control().calls.clear();
    for (int i = 0; i < 10; ++i)
      ASSERT_TRUE(run(*m, 0, i % 2 * 4));
    // Which context, and the launch: nothing else, whether the pointers change or not.
    EXPECT_EQ(count("cuCtxGetCurrent"), 10);
    EXPECT_EQ(count("cuCtxGetId"), 10);
    EXPECT_EQ(count("cuLaunchKernel"), 10);
    EXPECT_EQ(control().calls.size(), 30u);
  }
  fakeCuda.setCurrent(nullptr);
}

TEST_F(CudaRuntime, MisalignedPointersTakeTheOtherKernel) {
  auto m = mustMake(chain(1));
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  struct {
    int dx, dy;
    const char *kernel;
  } cases[] = {{0, 0, "add"}, {1, 0, "add_u"}, {0, 1, "add_u"}, {2, 3, "add_u"},
               {4, 0, "add"}, {0, 4, "add"},   {4, 1, "add_u"}};
  for (auto &c : cases) {
    control().launches.clear();
    Status s = run(*m, c.dx, c.dy);
    ASSERT_TRUE(s) << why(s);
    ASSERT_EQ(control().launches.size(), 1u);
    EXPECT_EQ(control().launches[0].kernel, c.kernel) << c.dx << " " << c.dy;
    EXPECT_EQ(control().launches[0].grid[0], std::string(c.kernel) == "add" ? 2u : 4u);
    EXPECT_EQ(control().launches[0].block[0], std::string(c.kernel) == "add" ? 128u : 64u);
    expectResult(1, c.dx, c.dy);
  }
  // Not aligned to its element: a mistake.
  const void *in[] = {reinterpret_cast<char *>(x) + 2};
  void *out[] = {y};
  Status s = m->run(in, out, nullptr);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Usage);
}

TEST_F(CudaRuntime, AKernelWithoutAnotherRefusesMisalignedPointers) {
  Package p = chain(1);
  p.launches[0].unalignedKernel.clear();
  auto m = mustMake(p);
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  Status s = run(*m, 1, 0);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Usage);
  EXPECT_NE(s.error().message.find("kernel 'add' (add:n2)"), std::string::npos) << why(s);
  EXPECT_TRUE(run(*m)); // aligned ones work again
  expectResult(1);
}

TEST_F(CudaRuntime, PlansOfThreeAndMoreRunAsAGraph) {
  for (int launches : {2, 3, 7}) {
    control().reset();
    auto m = mustMake(chain(launches));
    ASSERT_TRUE(m && m->bind("w", w, kBytes));
    EXPECT_EQ(m->kernelCount(), launches);
    bool graph = launches >= 3;
    Status s = run(*m, 0, 0, stream(0x10));
    ASSERT_TRUE(s) << why(s);
    expectResult(launches);
    EXPECT_EQ(count("cuGraphLaunch"), graph);
    EXPECT_EQ(count("cuLaunchKernel"), graph ? 0 : launches);
    ASSERT_EQ(control().launches.size(), static_cast<size_t>(launches));
    for (auto &l : control().launches)
      EXPECT_EQ(l.stream, stream(0x10));

    // The same pointers again: no node changes.
    control().calls.clear();
    ASSERT_TRUE(run(*m, 0, 0, stream(0x10)));
    EXPECT_EQ(count("cuGraphExecKernelNodeSetParams"), 0);
    // Another input, then another output: one node each, and an unaligned one changes the kernel too.
    ASSERT_TRUE(run(*m, 4, 0, stream(0x10)));
    EXPECT_EQ(count("cuGraphExecKernelNodeSetParams"), graph ? 1 : 0);
    expectResult(launches, 4, 0);
    control().launches.clear();
    ASSERT_TRUE(run(*m, 4, 1, stream(0x10)));
    EXPECT_EQ(count("cuGraphExecKernelNodeSetParams"), graph ? 2 : 0);
    expectResult(launches, 4, 1);
    EXPECT_EQ(control().launches.front().kernel, "add");
    EXPECT_EQ(control().launches.back().kernel, "add_u");
    EXPECT_EQ(control().launches.back().grid[0], 4u);
    EXPECT_EQ(count("cuMemAlloc_v2"), 0);
  }
}

TEST_F(CudaRuntime, GraphsThatFailFallBackToLaunches) {
  for (const char *function : {"cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiateWithFlags",
                               "cuGraphExecKernelNodeSetParams", "cuGraphLaunch"})
    for (int succeed : {0, 1}) {
      control().reset();
      control().failures[function] = {succeed, 1};
      auto m = mustMake(chain(4));
      ASSERT_TRUE(m && m->bind("w", w, kBytes));
      for (int i = 0; i < 3; ++i) {
        std::fill(y, y + kN, -1.0f);
        Status s = run(*m, i % 2 * 4);
        ASSERT_TRUE(s) << function << ": " << why(s);
        expectResult(4, i % 2 * 4);
      }
      bool oncePerModule =
          std::string(function) == "cuGraphCreate" || std::string(function) == "cuGraphInstantiateWithFlags";
      if (succeed == 0 || !oncePerModule)
        EXPECT_GT(count("cuLaunchKernel"), 0) << function;
    }
}

TEST_F(CudaRuntime, CapturesGetPlainLaunchesAndNoAllocation) {
  auto m = mustMake(chain(4));
  ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m, 0, 0, stream(0x10)));
  control().calls.clear();
  control().launches.clear();
  control().capturing = 1;
  Status s = run(*m, 0, 0, stream(0x20));
  ASSERT_TRUE(s) << why(s);
  control().capturing = 0;
  EXPECT_EQ(count("cuLaunchKernel"), 4);
  for (const char *function : {"cuGraphLaunch", "cuMemAlloc_v2", "cuEventRecord", "cuStreamWaitEvent",
                               "cuCtxSynchronize", "cuStreamSynchronize", "cuModuleLoadDataEx"})
    EXPECT_EQ(count(function), 0) << function;
  expectResult(4);
}

TEST_F(CudaRuntime, TheFirstRunMayBeCaptured) {
  Package p = chain(4);
  p.parameters.clear();
  for (auto &l : p.launches)
    l.args[1] = 0;
  p.buffers[1] = {PackageBuffer::Arena, 0, 0, kBytes};
  auto m = mustMake(p);
  ASSERT_TRUE(m);
  control().capturing = 1; // the fake refuses allocation now, but to threads that said that they know
  Status s = run(*m);
  EXPECT_TRUE(s) << why(s);
  EXPECT_EQ(count("cuLaunchKernel"), 4);
  control().capturing = 0;
}

TEST_F(CudaRuntime, RunsOnAnotherStreamWaitForTheArena) {
  auto m = mustMake(chain(2));
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  ASSERT_TRUE(run(*m, 0, 0, stream(0x10)));
  ASSERT_TRUE(run(*m, 0, 0, stream(0x10)));
  EXPECT_EQ(count("cuStreamWaitEvent"), 0);
  ASSERT_TRUE(run(*m, 0, 0, stream(0x20)));
  EXPECT_EQ(count("cuStreamWaitEvent"), 1);
  ASSERT_TRUE(run(*m, 0, 0, stream(0x10)));
  EXPECT_EQ(count("cuStreamWaitEvent"), 2);
  // The per-thread stream's handle does not say which stream it is.
  ASSERT_TRUE(run(*m, 0, 0, stream(2)));
  ASSERT_TRUE(run(*m, 0, 0, stream(2)));
  EXPECT_EQ(count("cuStreamWaitEvent"), 4);
  // One kernel has no arena, and pays for nothing.
  control().calls.clear();
  auto one = mustMake(chain(1));
  ASSERT_TRUE(one && one->bind("w", w, kBytes));
  ASSERT_TRUE(run(*one, 0, 0, stream(0x10)) && run(*one, 0, 0, stream(0x20)));
  EXPECT_EQ(count("cuStreamWaitEvent") + count("cuEventRecord") + count("cuStreamIsCapturing"), 0);
}

TEST_F(CudaRuntime, TheArenaIsTakenOnce) {
  cu::Context mine = fakeCuda.makeContext();
  fakeCuda.setCurrent(mine);
  {
    auto m = mustMake(chain(3));
    ASSERT_TRUE(m);
    EXPECT_EQ(count("cuMemAlloc_v2"), 1) << "with a context current, the module is ready when it is made";
    EXPECT_EQ(count("cuModuleLoadDataEx"), 1);
    ASSERT_TRUE(m->bind("w", w, kBytes));
    control().calls.clear();
    for (int i = 0; i < 5; ++i)
      ASSERT_TRUE(run(*m, i % 3 * 4));
    EXPECT_EQ(count("cuMemAlloc_v2"), 0);
    EXPECT_EQ(count("cuModuleLoadDataEx"), 0);
    EXPECT_EQ(count("cuCtxPushCurrent_v2"), 0);
    EXPECT_EQ(fakeCuda.depth(), 1);
  }
  fakeCuda.setCurrent(nullptr);
}

TEST_F(CudaRuntime, WithoutAContextNothingIsStartedUntilItIsNeeded) {
  auto m = mustMake(chain(3));
  ASSERT_TRUE(m);
  EXPECT_EQ(count("cuModuleLoadDataEx"), 0);
  EXPECT_EQ(count("cuMemAlloc_v2"), 0);
  ASSERT_TRUE(m->bind("w", w, kBytes));
  EXPECT_EQ(count("cuModuleLoadDataEx"), 1);
  EXPECT_EQ(fakeCuda.depth(), 0);
}

TEST_F(CudaRuntime, AStreamTellsItsContextWhereNoneIsCurrent) {
  auto m = mustMake(chain(1));
  cu::Context mine = fakeCuda.makeContext();
  fakeCuda.setCurrent(mine);
  auto s = CudaStream::create();
  ASSERT_TRUE(s);
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  fakeCuda.setCurrent(nullptr);
  control().calls.clear();
  ASSERT_TRUE(run(*m, 0, 0, s->handle()));
  EXPECT_EQ(count("cuModuleLoadDataEx"), 0) << "the context that it was bound in is the stream's";
  EXPECT_EQ(count("cuDevicePrimaryCtxRetain"), 0);
  expectResult(1);
}

TEST_F(CudaRuntime, ParametersFollowTheModuleFromContextToContext) {
  cu::Context a = fakeCuda.makeContext(), b = fakeCuda.makeContext();
  auto m = mustMake(chain(3));
  ASSERT_TRUE(m);
  fakeCuda.setCurrent(a);
  ASSERT_TRUE(m->bind("w", w, kBytes) && run(*m));
  fakeCuda.setCurrent(b);
  Status s = run(*m);
  ASSERT_TRUE(s) << why(s);
  EXPECT_EQ(count("cuMemcpyPeer"), 1);
  EXPECT_EQ(count("cuModuleLoadDataEx"), 2);
  expectResult(3);
  ASSERT_TRUE(run(*m));
  EXPECT_EQ(count("cuMemcpyPeer"), 1);
  // Bound again in b: a gets the new values when it runs next.
  std::fill(w, w + kN, 10.0f);
  ASSERT_TRUE(m->bind("w", w, kBytes));
  fakeCuda.setCurrent(a);
  ASSERT_TRUE(run(*m));
  EXPECT_EQ(count("cuMemcpyPeer"), 2);
  EXPECT_EQ(y[3], x[3] + 30.0f);
  fakeCuda.setCurrent(nullptr);
}

/// y = x + d, and d = w + w is made when w is bound.
static Package withDerived() {
  Package p = chain(1);
  p.buffers.push_back({PackageBuffer::Derived, 0, 0, kBytes});
  p.derivedBytes = 1024;
  p.launches = {add({0, 3, 2})};
  p.bindLaunches = {add({1, 1, 3})};
  return p;
}

TEST_F(CudaRuntime, WhatIsDerivedIsMadeAtBinding) {
  auto m = mustMake(withDerived());
  ASSERT_TRUE(m);
  EXPECT_EQ(m->kernelCount(), 1);
  ASSERT_TRUE(m->bind("w", w, kBytes));
  EXPECT_EQ(control().launches.size(), 1u);
  control().calls.clear();
  ASSERT_TRUE(run(*m));
  EXPECT_EQ(count("cuLaunchKernel"), 1) << "a run makes nothing of parameters";
  expectResult(2);
  std::fill(w, w + kN, 7.0f);
  ASSERT_TRUE(m->bind("w", w, kBytes));
  ASSERT_TRUE(run(*m));
  EXPECT_EQ(y[5], x[5] + 14.0f);
  // A capture holds the run alone.
  control().launches.clear();
  control().capturing = 1;
  ASSERT_TRUE(run(*m));
  EXPECT_EQ(control().launches.size(), 1u);
  control().capturing = 0;
}

TEST_F(CudaRuntime, WhatIsDerivedFollowsItsParameterIntoAnotherContext) {
  cu::Context a = fakeCuda.makeContext(), b = fakeCuda.makeContext();
  auto m = mustMake(withDerived());
  ASSERT_TRUE(m);
  fakeCuda.setCurrent(a);
  ASSERT_TRUE(m->bind("w", w, kBytes) && run(*m));
  fakeCuda.setCurrent(b);
  ASSERT_TRUE(run(*m));
  expectResult(2);
  std::fill(w, w + kN, 10.0f);
  ASSERT_TRUE(m->bind("w", w, kBytes));
  fakeCuda.setCurrent(a);
  ASSERT_TRUE(run(*m));
  EXPECT_EQ(y[3], x[3] + 20.0f);
  fakeCuda.setCurrent(nullptr);
}

TEST_F(CudaRuntime, BindingFailsWhereWhatIsDerivedCannotBeMade) {
  auto m = mustMake(withDerived());
  ASSERT_TRUE(m);
  control().failures["cuLaunchKernel"] = {0, 700};
  Status s = m->bind("w", w, kBytes);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Device);
  control().failures.clear();
  // It is made by the run that needs it.
  ASSERT_TRUE(run(*m));
  expectResult(2);
}

TEST_F(CudaRuntime, AContextThatDiedIsNotMistakenForTheNext) {
  cu::Context a = fakeCuda.makeContext();
  auto m = mustMake(chain(3));
  ASSERT_TRUE(m);
  fakeCuda.setCurrent(a);
  ASSERT_TRUE(m->bind("w", w, kBytes) && run(*m));
  fakeCuda.destroyContext(a);
  // What lived in it dies with it: the runtime must not release it, nor touch the context.
  int modules = control().liveModules, graphs = control().liveGraphs, events = control().liveEvents;
  cu::Context b = fakeCuda.makeContext();
  ASSERT_EQ(a, b) << "the fake gives handles out again";
  fakeCuda.setCurrent(b);
  Status s = run(*m);
  ASSERT_FALSE(s) << "the parameter is gone";
  EXPECT_EQ(s.error().code, Code::Usage);
  ASSERT_TRUE(m->bind("w", w, kBytes));
  s = run(*m);
  ASSERT_TRUE(s) << why(s);
  expectResult(3);
  fakeCuda.setCurrent(nullptr);
  m.reset();
  control().liveModules -= modules;
  control().liveGraphs -= graphs;
  control().liveEvents -= events;
}

TEST_F(CudaRuntime, ContextsMayDieBeforeTheModule) {
  cu::Context a = fakeCuda.makeContext(), b = fakeCuda.makeContext();
  auto m = mustMake(chain(1));
  ASSERT_TRUE(m);
  fakeCuda.setCurrent(a);
  ASSERT_TRUE(m->bind("w", w, kBytes) && run(*m));
  fakeCuda.destroyContext(a);
  fakeCuda.setCurrent(b);
  Status s = run(*m); // its parameter was in a
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Usage);
  EXPECT_NE(why(s).find("'w'"), std::string::npos);
  ASSERT_TRUE(m->bind("w", w, kBytes));
  s = run(*m);
  ASSERT_TRUE(s) << why(s);
  expectResult(1);
  fakeCuda.setCurrent(nullptr);
  fakeCuda.destroyContext(b);
  m.reset(); // the fake aborts if a dead context is touched
  control().liveModules = 0;
}

TEST_F(CudaRuntime, AParametersContextDiedWhileAnotherIsInUse) {
  cu::Context a = fakeCuda.makeContext(), b = fakeCuda.makeContext();
  auto m = mustMake(chain(1));
  ASSERT_TRUE(m);
  fakeCuda.setCurrent(b);
  ASSERT_TRUE(m->bind("w", w, kBytes) && run(*m));
  fakeCuda.setCurrent(a);
  ASSERT_TRUE(m->bind("w", w, kBytes));
  fakeCuda.destroyContext(a);
  fakeCuda.setCurrent(b);
  Status s = run(*m);
  ASSERT_FALSE(s);
  EXPECT_NE(why(s).find("was destroyed"), std::string::npos) << why(s);
  ASSERT_TRUE(m->bind("w", w, kBytes));
  EXPECT_TRUE(run(*m));
  m.reset();
  fakeCuda.setCurrent(nullptr);
  control().liveModules = 0;
}

TEST_F(CudaRuntime, BindTakesHostAndDeviceMemory) {
  auto memory = CudaMemory::allocate(kBytes);
  ASSERT_TRUE(memory && memory->upload(w, kBytes));
  auto m = mustMake(chain(1));
  ASSERT_TRUE(m);
  control().calls.clear();
  ASSERT_TRUE(m->bind("w", memory->data(), kBytes));
  EXPECT_EQ(count("cuMemcpy"), 1);
  EXPECT_EQ(count("cuMemcpyHtoD_v2"), 0);
  EXPECT_GE(count("cuCtxSynchronize"), 1);    // what wrote the data has ended
  EXPECT_GE(count("cuStreamSynchronize"), 1); // and so has the copy: the caller may free
  *memory = CudaMemory();
  ASSERT_TRUE(run(*m));
  expectResult(1);
  std::fill(w, w + kN, 7.0f);
  ASSERT_TRUE(m->bind("w", w, kBytes));
  EXPECT_EQ(count("cuMemcpyHtoD_v2"), 1);
  EXPECT_EQ(count("cuMemAlloc_v2"), 2); // the module's own few bytes and the parameter's: bound again into the same
  ASSERT_TRUE(run(*m));
  EXPECT_EQ(y[0], x[0] + 7.0f);
}

TEST_F(CudaRuntime, UnboundParametersAndWrongArguments) {
  rl_module *m = wrapModule(mustMake(chain(1)));
  const void *in[] = {x};
  void *out[] = {y};
  EXPECT_EQ(rl_run(m, in, out, nullptr), RL_USAGE);
  EXPECT_NE(std::string(rl_last_error()).find("'w'"), std::string::npos);
  EXPECT_EQ(rl_bind(m, "w", w, kBytes - 1), RL_INVALID);
  EXPECT_EQ(rl_bind(m, "w", nullptr, kBytes), RL_USAGE);
  EXPECT_EQ(rl_bind(m, "nope", w, kBytes), RL_USAGE);
  ASSERT_EQ(rl_bind(m, "w", w, kBytes), RL_OK) << rl_last_error();
  EXPECT_EQ(rl_run(m, nullptr, out, nullptr), RL_USAGE);
  EXPECT_EQ(rl_run(m, in, nullptr, nullptr), RL_USAGE);
  const void *null[] = {nullptr};
  EXPECT_EQ(rl_run(m, null, out, nullptr), RL_USAGE);
  EXPECT_EQ(rl_run(m, in, out, nullptr), RL_OK) << rl_last_error();
  rl_unload(m);
}

TEST_F(CudaRuntime, EmptyTensorsLaunchNothing) {
  Package p = chain(1);
  TensorType empty{DType::F32, {3, 0}};
  p.inputs[0].type = p.outputs[0].type = p.parameters[0].type = empty;
  for (auto &b : p.buffers)
    b.bytes = 0;
  p.launches[0].grid = {0, 1, 1};
  PackageLaunch copy;
  copy.kind = PackageLaunch::Copy;
  copy.args = {2, 0};
  p.launches.push_back(copy);
  auto m = mustMake(p);
  ASSERT_TRUE(m);
  EXPECT_EQ(m->kernelCount(), 0);
  ASSERT_TRUE(m->bind("w", nullptr, 0));
  const void *in[] = {nullptr};
  void *out[] = {nullptr};
  Status s = m->run(in, out, nullptr);
  ASSERT_TRUE(s) << why(s);
  EXPECT_EQ(control().launches.size(), 0u);
  EXPECT_EQ(count("cuMemcpyHtoD_v2") + count("cuMemcpyDtoDAsync_v2") + count("cuLaunchKernel"), 0);
}

TEST_F(CudaRuntime, CopiesAreEnqueuedInOrder) {
  Package p = chain(3);
  p.outputs.push_back({"x", p.inputs[0].type});
  p.buffers.push_back({PackageBuffer::Output, 1, 0, kBytes});
  PackageLaunch copy;
  copy.kind = PackageLaunch::Copy;
  copy.args = {5, 0};
  p.launches.push_back(copy);
  auto m = mustMake(p);
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  EXPECT_EQ(m->kernelCount(), 3);
  float z[kN] = {};
  const void *in[] = {x};
  void *out[] = {y, z};
  Status s = m->run(in, out, nullptr);
  ASSERT_TRUE(s) << why(s);
  expectResult(3);
  EXPECT_EQ(std::memcmp(z, x, kBytes), 0);
  EXPECT_EQ(count("cuMemcpyDtoDAsync_v2"), 1);
  EXPECT_EQ(control().calls.back(), "cuCtxPopCurrent_v2");
}

TEST_F(CudaRuntime, AParameterThatRunsReplaceFollowsThemAndIsRead) {
  Package p = chain(1);
  PackageLaunch copy;
  copy.kind = PackageLaunch::Copy;
  copy.args = {1, 2}; // w = y
  p.launches.push_back(copy);
  cu::Context a = fakeCuda.makeContext(), b = fakeCuda.makeContext();
  auto m = mustMake(p);
  ASSERT_TRUE(m);
  float got[kN] = {};
  fakeCuda.setCurrent(a);
  EXPECT_EQ(m->read("w", got, kBytes).error().code, Code::Usage); // not bound
  ASSERT_TRUE(m->bind("w", w, kBytes));
  ASSERT_TRUE(m->read("w", got, kBytes));
  EXPECT_EQ(got[3], w[3]);
  EXPECT_EQ(m->read("w", got, kBytes - 4).error().code, Code::Invalid);
  EXPECT_EQ(m->read("v", got, kBytes).error().code, Code::Usage);
  EXPECT_EQ(m->read("w", nullptr, kBytes).error().code, Code::Usage);
  // y = x + w, w = y: once in a, twice in b, once in a, each on top of the run before.
  float times = 0;
  for (cu::Context c : {a, b, b, a}) {
    fakeCuda.setCurrent(c);
    Status s = run(*m);
    ASSERT_TRUE(s) << why(s);
    ++times;
    EXPECT_EQ(y[3], times * x[3] + w[3]);
    ASSERT_TRUE(m->read("w", got, kBytes));
    EXPECT_EQ(std::memcmp(got, y, kBytes), 0);
  }
  fakeCuda.setCurrent(b); // read where it was not replaced last
  ASSERT_TRUE(m->read("w", got, kBytes));
  EXPECT_EQ(std::memcmp(got, y, kBytes), 0);
  fakeCuda.setCurrent(nullptr);
}

TEST_F(CudaRuntime, DynamicSharedMemoryIsAskedFor) {
  // The kernel's own variables and these may be more than it has without asking.
  Package p = chain(1);
  p.launches[0].sharedBytes = 40000;
  auto m = mustMake(p);
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  Status s = run(*m);
  ASSERT_TRUE(s) << why(s);
  EXPECT_EQ(count("cuFuncSetAttribute"), 1);
}

TEST_F(CudaRuntime, ClustersAndLargeSharedMemory) {
  for (int launches : {1, 3}) {
    control().reset();
    Package p = chain(launches);
    for (auto &l : p.launches) {
      l.kernel = "add_cluster";
      l.unalignedKernel.clear();
      l.cluster = {2, 1, 1};
      l.sharedBytes = 100000;
    }
    auto m = mustMake(p);
    ASSERT_TRUE(m && m->bind("w", w, kBytes));
    Status s = run(*m);
    ASSERT_TRUE(s) << why(s);
    expectResult(launches);
    EXPECT_EQ(count("cuFuncSetAttribute"), 1) << "the launches have one kernel";
    ASSERT_EQ(control().launches.size(), static_cast<size_t>(launches));
    for (auto &l : control().launches) {
      EXPECT_EQ(l.cluster[0], 2u);
      EXPECT_EQ(l.shared, 100000u);
      EXPECT_EQ(l.graph, launches >= 3);
    }
  }
}

TEST_F(CudaRuntime, TheCubinIsTakenWhereItFits) {
  Package p = chain(1);
  p.cubin = std::string("\x7f"
                        "ELF") +
            kPtx;
  {
    auto m = mustMake(p);
    ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m));
    EXPECT_EQ(count("cuModuleLoadDataEx"), 1);
  }
  control().reset();
  control().cubinFits = false;
  {
    auto m = mustMake(p);
    ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m));
    EXPECT_EQ(count("cuModuleLoadDataEx"), 2);
    expectResult(1);
  }
  p.ptx.clear();
  auto m = mustMake(p);
  ASSERT_TRUE(m);
  Status s = m->bind("w", w, kBytes);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Device);
  control().cubinFits = true;
  EXPECT_TRUE(m->bind("w", w, kBytes)); // a failure is not remembered: the next context may do
  // What is no ELF at all is not given to the driver as machine code.
  control().reset();
  p = chain(1);
  p.cubin = "garbage";
  m = mustMake(p);
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  EXPECT_EQ(count("cuModuleLoadDataEx"), 1);
}

TEST_F(CudaRuntime, BrokenPtxComesWithTheAssemblersLog) {
  Package p = chain(1);
  p.ptx += "broken";
  control().log = "ptxas application ptx input, line 7; error : Parsing error near 'broken'";
  auto m = mustMake(p);
  ASSERT_TRUE(m);
  Status s = m->bind("w", w, kBytes);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Device);
  EXPECT_NE(s.error().message.find("CUDA_ERROR_INVALID_PTX"), std::string::npos) << why(s);
  EXPECT_NE(s.error().message.find("line 7"), std::string::npos) << why(s);

  auto cubin = assemblePtx(p.ptx);
  ASSERT_FALSE(cubin);
  EXPECT_EQ(cubin.error().code, Code::Invalid);
  EXPECT_NE(cubin.error().message.find("line 7"), std::string::npos);
  cubin = assemblePtx(kPtx);
  ASSERT_TRUE(cubin);
  EXPECT_EQ(cubin->substr(0, 4), "\x7f"
                                 "ELF");
  EXPECT_EQ(count("cuLinkCreate_v2"), count("cuLinkDestroy"));
}

TEST_F(CudaRuntime, ArchitecturesThatDoNotFitAreUnsupported) {
  struct {
    const char *arch;
    int major, minor;
    Code code;
  } cases[] = {{"sm_80", 9, 0, Code::Ok},
               {"sm_80", 8, 0, Code::Ok},
               {"sm_80", 7, 5, Code::Unsupported},
               {"sm_90a", 9, 0, Code::Ok},
               {"sm_90a", 10, 0, Code::Unsupported},
               {"sm_90a", 8, 9, Code::Unsupported},
               {"sm_100f", 10, 3, Code::Ok},
               {"sm_100f", 12, 0, Code::Unsupported},
               {"sm_120", 12, 1, Code::Ok},
               {"sm_", 9, 0, Code::Invalid},
               {"sm_90x", 9, 0, Code::Invalid},
               {"avx2", 9, 0, Code::Invalid},
               {"sm_99999999999", 9, 0, Code::Invalid}};
  for (auto &c : cases) {
    control().major = c.major;
    control().minor = c.minor;
    Package p = chain(1);
    p.arch = c.arch;
    auto m = mustMake(p);
    ASSERT_TRUE(m);
    Status s = m->bind("w", w, kBytes);
    EXPECT_EQ(s ? Code::Ok : s.error().code, c.code) << c.arch << " on " << c.major << "." << c.minor << ": " << why(s);
    if (c.code == Code::Unsupported)
      EXPECT_NE(why(s).find("Fake H200"), std::string::npos) << why(s);
  }
}

TEST_F(CudaRuntime, AMissingKernelIsInvalid) {
  Package p = chain(1);
  p.launches[0].unalignedKernel = "missing";
  auto m = mustMake(p);
  ASSERT_TRUE(m);
  Status s = m->bind("w", w, kBytes);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Invalid);
  EXPECT_NE(why(s).find("'missing'"), std::string::npos);
}

TEST_F(CudaRuntime, FailuresNameTheKernelAndTheDriversError) {
  auto m = mustMake(chain(2));
  ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m));
  control().failures["cuLaunchKernel"] = {1, 1};
  Status s = run(*m);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Device);
  EXPECT_EQ(why(s), "launching kernel 'add' (add:n2): CUDA_ERROR_INVALID_VALUE: told by the fake driver");
  control().failures.clear();
  EXPECT_TRUE(run(*m));
  // An error that no table knows.
  control().failures["cuLaunchKernel"] = {0, 12345};
  EXPECT_NE(why(run(*m)).find("CUDA error 12345"), std::string::npos);
  control().failures.clear();
  for (const char *function : {"cuMemAlloc_v2", "cuEventCreate", "cuModuleLoadDataEx", "cuModuleGetFunction",
                               "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxPushCurrent_v2"}) {
    auto other = mustMake(chain(2));
    ASSERT_TRUE(other);
    control().failures[function] = {0, 2};
    s = other->bind("w", w, kBytes);
    if (std::string(function) != "cuDevicePrimaryCtxRetain") { // which was retained before
      ASSERT_FALSE(s) << function;
      EXPECT_EQ(s.error().code, Code::Device);
      EXPECT_NE(why(s).find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << why(s);
    }
    control().failures.clear();
    s = other->bind("w", w, kBytes);
    EXPECT_TRUE(s) << function << ": " << why(s);
  }
}

TEST_F(CudaRuntime, StickyErrorsSayWhichKernelWasLast) {
  auto m = mustMake(chain(1));
  ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m));
  auto s = CudaStream::create();
  ASSERT_TRUE(s);
  control().failures["cuStreamSynchronize"] = {0, 700};
  Status waited = s->synchronize();
  ASSERT_FALSE(waited);
  EXPECT_NE(why(waited).find("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"),
            std::string::npos);
  EXPECT_NE(why(waited).find("kernel 'add' (add:n2)"), std::string::npos) << why(waited);
  // In the middle of a plan, and of a graph.
  auto two = mustMake(chain(2)), four = mustMake(chain(4));
  control().failures.clear();
  ASSERT_TRUE(two && four && two->bind("w", w, kBytes) && four->bind("w", w, kBytes));
  control().failures["cuLaunchKernel"] = {1, 700};
  Status launched = run(*two);
  ASSERT_FALSE(launched);
  EXPECT_NE(why(launched).find("launching kernel 'add' (add:n2)"), std::string::npos) << why(launched);
  EXPECT_NE(why(launched).find("last launched here: kernel 'add' (add:n3)"), std::string::npos) << why(launched);
  control().failures["cuGraphLaunch"] = {0, 700};
  launched = run(*four);
  ASSERT_FALSE(launched);
  EXPECT_NE(why(launched).find("4 kernels of graph 'chain'"), std::string::npos) << why(launched);
  control().failures.clear();
}

TEST_F(CudaRuntime, ModulesOnSeveralThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  auto shared = mustMake(chain(3));
  ASSERT_TRUE(shared && shared->bind("w", w, kBytes));
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<float> out(kN);
      auto m = makeModule(chain(1 + t));
      if (!m || !(*m)->bind("w", w, kBytes))
        return void(++wrong);
      for (int i = 0; i < 50; ++i) {
        const void *in[] = {x};
        void *outs[] = {out.data()};
        for (Module *module : {m->get(), shared.get()}) {
          wrong += !module->run(in, outs, nullptr);
          wrong += out[9] != x[9] + 2.0f * static_cast<float>(module == shared.get() ? 3 : 1 + t);
        }
      }
    });
  for (auto &t : threads)
    t.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(CudaRuntime, DeviceMemoryStreamsAndEvents) {
  EXPECT_TRUE(cudaAvailable());
  auto device = currentCudaDevice();
  ASSERT_TRUE(device);
  EXPECT_EQ(device->name, "Fake H200");
  EXPECT_EQ(device->arch(), "sm_90a");
  EXPECT_EQ(device->sms, 132);
  EXPECT_EQ(device->sharedPerBlock, 232448);
  EXPECT_EQ(fakeCuda.depth(), 0);
  control().major = 8;
  EXPECT_EQ(currentCudaDevice()->arch(), "sm_80");

  auto memory = CudaMemory::allocate(100);
  ASSERT_TRUE(memory);
  char bytes[100] = {}, back[100] = {};
  std::iota(bytes, bytes + 100, char(1));
  ASSERT_TRUE(memory->upload(bytes, 100));
  ASSERT_TRUE(memory->download(back, 60, 40));
  EXPECT_EQ(back[0], 41);
  EXPECT_EQ(back[59], 100);
  EXPECT_EQ(memory->upload(bytes, 61, 40).error().code, Code::Usage);
  EXPECT_EQ(memory->download(back, SIZE_MAX, 1).error().code, Code::Usage);
  EXPECT_EQ(memory->download(back, 1, SIZE_MAX).error().code, Code::Usage);
  ASSERT_TRUE(memory->fill(7));
  ASSERT_TRUE(memory->download(back, 100));
  EXPECT_EQ(back[99], 7);
  auto nothing = CudaMemory::allocate(0);
  ASSERT_TRUE(nothing);
  EXPECT_EQ(nothing->data(), nullptr);
  EXPECT_TRUE(nothing->upload(nullptr, 0));
  control().failures["cuMemAlloc_v2"] = {0, 2};
  auto failed = CudaMemory::allocate(size_t(1) << 60);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("1152921504606846976 bytes"), std::string::npos);

  auto s = CudaStream::create();
  auto start = CudaEvent::create(), end = CudaEvent::create();
  ASSERT_TRUE(s && start && end);
  ASSERT_TRUE(start->record(s->handle()) && end->record(s->handle()));
  auto elapsed = CudaEvent::elapsedMicroseconds(*start, *end);
  ASSERT_TRUE(elapsed);
  EXPECT_DOUBLE_EQ(*elapsed, 1500.0);
  EXPECT_TRUE(cudaSynchronize());
  EXPECT_EQ(cudaMemoryInfo()->total, 2000u);
}
