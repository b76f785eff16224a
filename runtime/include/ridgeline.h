/* Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions. */
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * The C interface, version 1. One header for two shared libraries:
 *
 *   libridgeline_runtime.so   loads and runs ahead-of-time packages. It needs libc, libstdc++ and, only where a package
 *                             is for CUDA, the driver's libcuda.so.1, which is opened at run time.
 *   libridgeline.so           the same, and the compiler.
 *
 * Nothing throws across this boundary and no argument aborts the process. Every function that returns an int status
 * returns RL_OK or one of the codes below; the text that says why is rl_last_error().
 *
 * Threads: a module may be used from several threads, one call at a time per module; different modules are independent.
 */
#ifndef RIDGELINE_H
#define RIDGELINE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define RL_API __attribute__((visibility("default")))
#else
#define RL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A compiled graph, with its parameters once they are bound. */
typedef struct rl_module rl_module;

/* Status codes; the command line's exit status uses the same numbers. */
enum {
  RL_OK = 0,
  RL_USAGE = 1,       /* a call that cannot be right: a null pointer, an unknown name, a parameter that was not bound */
  RL_INVALID = 2,     /* the graph, the package or the data is invalid */
  RL_UNSUPPORTED = 3, /* valid, but this target or this machine cannot do it */
  RL_DEVICE = 4       /* the device, the driver or the file system failed */
};

/* Addition: names for the three values of `kind` below. */
enum { RL_INPUTS = 0, RL_PARAMETERS = 1, RL_OUTPUTS = 2 };

/* The text of this thread's last failing call: "FILE:/json/pointer: message", with the parts that do not apply left
 * out. Never NULL; "" where no call of this thread has failed yet. Valid until this thread's next failing call. A call
 * that succeeds leaves it as it is. */
RL_API const char *rl_last_error(void);

/* The library's version, "MAJOR.MINOR.PATCH". Never NULL. */
RL_API const char *rl_version(void);

/* ---- the compiler: libridgeline.so only --------------------------------------------------------------------------- */

/* Compiles a graph file's text (`length` bytes of JSON, UTF-8, no terminator needed).
 *   target    as the command line's --target: "cpu", "cuda", "sm_90a", "h200", "reference", ...; NULL: the default.
 *   options   NULL, or a JSON object: {"precision": "keep" | "bf16" | ..., "cache": "off" | DIRECTORY}.
 *             Additions: {"dims": {"B": 32}} gives the extents of a graph's symbolic dims; {"delayed_scaling":
 *             {"every": N}} (N: 1 where it is left out) lets quantize and fake_quantize nodes of whole tensors use scales
 *             from the amax of up to 16 earlier runs, found anew after every N runs. Nodes with a dynamic scale start
 *             with scale 1, those with a literal with that. The module then has more parameters, last in the
 *             signature, which rl_compile binds and each run replaces; they may be read with rl_read and bound again
 *             (a module that was saved and loaded must have them bound). With S such nodes, in the order of the graph
 *             file: "delayed.history" f32 [S, 16], "delayed.scale" f32 [S], "delayed.overflows" i64 [S] (values
 *             that were clipped so far), "delayed.runs" i64 [].
 *   out       the new module; release it with rl_unload. NULL is stored on failure. */
RL_API int rl_compile(const char *graph_json, size_t length, const char *target, const char *options, rl_module **out);

/* Writes the module as a package directory that rl_load reads. The directory is replaced whole if it holds a package;
 * any other non-empty directory is refused. Bound parameters are not part of a package. */
RL_API int rl_save(const rl_module *module, const char *directory);

/* The compiler's decisions. format: "text", "json" or "html". *text is released with rl_free_text. */
RL_API int rl_explain(const rl_module *module, const char *format, char **text);

/* Releases a text of rl_explain. NULL is accepted. */
RL_API void rl_free_text(char *text);

/* ---- packages ----------------------------------------------------------------------------------------------------- */

/* Reads and checks a package directory. *out is released with rl_unload; NULL is stored on failure. A CUDA package
 * loads on a machine without a GPU, too: its signature can be read, and rl_bind and rl_run return RL_DEVICE. */
RL_API int rl_load(const char *package_directory, rl_module **out);

/* Releases a module, its parameters and its device memory; on CUDA it waits for the module's launches to end. NULL is
 * accepted. */
RL_API void rl_unload(rl_module *module);

/* Number of tensors. kind: 0 inputs, 1 parameters, 2 outputs. -1 where an argument is wrong. */
RL_API int rl_count(const rl_module *module, int kind);

/* One tensor of the signature; index in the order of the graph file.
 *   name, dtype   null-terminated; dtype is one of f32 f16 bf16 f8e4m3 f8e5m2 f8e8m0 i8 u8 i32 i64 bool
 *   rank          0 to 8
 *   extents       `rank` extents, in elements (the tensor is dense and row-major)
 * Any of the four results may be NULL. What they point to lives as long as the module. */
RL_API int rl_tensor(const rl_module *module, int kind, int index, const char **name, const char **dtype, int *rank,
                     const int64_t **extents);

/* Binds a parameter: copies `bytes` bytes, which must be the tensor's size. `data` may be released or changed when the
 * call returns. Host memory on cpu and reference; device memory on a CUDA target, where host memory is accepted as well
 * (an addition). On CUDA the call waits for the context's earlier work, and for the copy. Binding again replaces the
 * values.
 * RL_USAGE: an unknown name or a null pointer; RL_INVALID: `bytes` is not the tensor's size. */
RL_API int rl_bind(rl_module *module, const char *parameter, const void *data, size_t bytes);

/* Addition: copies a parameter's values to host memory; `bytes` must be the tensor's size. On CUDA the call waits for the
 * context's earlier work. RL_USAGE: an unknown name, a null pointer or a parameter that was not bound; RL_INVALID: as
 * rl_bind. */
RL_API int rl_read(rl_module *module, const char *parameter, void *data, size_t bytes);

/* Runs the module once. `inputs` and `outputs` are arrays of rl_count(module, 0) and rl_count(module, 2) pointers:
 * device pointers on a CUDA target, host pointers on cpu and reference, each aligned to its element (16 bytes is
 * fastest). A pointer to an empty tensor may be NULL, and so may an array of no pointers.
 *
 * On a CUDA target the call only enqueues on `stream` (a CUstream; NULL is the default stream): it does not
 * synchronise, allocates nothing after the first call, and may be captured into a CUDA graph. It works in the caller's
 * current context; where there is none, in the stream's, or in the primary context of device 0. On cpu and reference it
 * returns when the outputs are written; `stream` is not used.
 *
 * RL_USAGE: a null or misaligned pointer, or a parameter that was not bound; RL_INVALID: an index out of range in the
 * data (cpu and reference). */
RL_API int rl_run(rl_module *module, const void *const *inputs, void *const *outputs, void *stream);

/* Kernel launches that one rl_run makes (copies of an input to an output are not kernels). -1 where module is NULL. */
RL_API int rl_kernel_count(const rl_module *module);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RIDGELINE_H */
