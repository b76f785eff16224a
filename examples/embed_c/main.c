/* Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions. */
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * A C program that compiles a graph file and runs it on host memory.
 *   embed_c GRAPH.json [TARGET]
 * Inputs are filled with a pattern of bytes that are small numbers in every type; the run is made twice and the results
 * compared bit for bit.
 */
#include "ridgeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int die(int code) {
  fprintf(stderr, "error: %s\n", rl_last_error());
  return code;
}

static char *read_file(const char *path, size_t *length) {
  FILE *f = fopen(path, "rb");
  char *text = NULL;
  long n;
  if (!f)
    return NULL;
  if (fseek(f, 0, SEEK_END) == 0 && (n = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0 && (text = malloc((size_t)n + 1)))
    *length = fread(text, 1, (size_t)n, f);
  fclose(f);
  return text;
}

static size_t element_size(const char *dtype) {
  if (!strcmp(dtype, "f32") || !strcmp(dtype, "i32"))
    return 4;
  if (!strcmp(dtype, "i64"))
    return 8;
  return !strcmp(dtype, "f16") || !strcmp(dtype, "bf16") ? 2 : 1;
}

static size_t tensor_bytes(const rl_module *m, int kind, int i) {
  const char *name, *dtype;
  int rank, k;
  const int64_t *extents;
  size_t n;
  if (rl_tensor(m, kind, i, &name, &dtype, &rank, &extents) != RL_OK)
    exit(die(RL_INVALID));
  n = element_size(dtype);
  for (k = 0; k < rank; ++k)
    n *= (size_t)extents[k];
  return n;
}

static void *filled(size_t bytes) {
  unsigned char *p = malloc(bytes ? bytes : 1);
  size_t i;
  for (i = 0; p && i < bytes; ++i)
    p[i] = (unsigned char)(i * 7 % 61);
  return p;
}

int main(int argc, char **argv) {
  rl_module *m = NULL;
  size_t length = 0;
  char *json, *text = NULL;
  const void **inputs;
  void **first, **second;
  int i, rc, same = 1;
  if (argc < 2) {
    fprintf(stderr, "usage: embed_c GRAPH.json [TARGET]\n");
    return 1;
  }
  if (!(json = read_file(argv[1], &length))) {
    fprintf(stderr, "error: %s: cannot open\n", argv[1]);
    return 2;
  }
  if ((rc = rl_compile(json, length, argc > 2 ? argv[2] : "cpu", NULL, &m)) != RL_OK)
    return die(rc);
  if ((rc = rl_explain(m, "text", &text)) != RL_OK)
    return die(rc);
  fputs(text, stdout);
  rl_free_text(text);
  for (i = 0; i < rl_count(m, RL_PARAMETERS); ++i) {
    const char *name, *dtype;
    int rank;
    const int64_t *extents;
    size_t bytes = tensor_bytes(m, RL_PARAMETERS, i);
    void *data = filled(bytes);
    rl_tensor(m, RL_PARAMETERS, i, &name, &dtype, &rank, &extents);
    if ((rc = rl_bind(m, name, data, bytes)) != RL_OK)
      return die(rc);
    free(data);
  }
  inputs = calloc((size_t)rl_count(m, RL_INPUTS) + 1, sizeof *inputs);
  first = calloc((size_t)rl_count(m, RL_OUTPUTS) + 1, sizeof *first);
  second = calloc((size_t)rl_count(m, RL_OUTPUTS) + 1, sizeof *second);
  for (i = 0; i < rl_count(m, RL_INPUTS); ++i)
    inputs[i] = filled(tensor_bytes(m, RL_INPUTS, i));
  for (i = 0; i < rl_count(m, RL_OUTPUTS); ++i) {
    first[i] = malloc(tensor_bytes(m, RL_OUTPUTS, i) + 1);
    second[i] = malloc(tensor_bytes(m, RL_OUTPUTS, i) + 1);
  }
  if ((rc = rl_run(m, inputs, first, NULL)) != RL_OK || (rc = rl_run(m, inputs, second, NULL)) != RL_OK)
    return die(rc);
  for (i = 0; i < rl_count(m, RL_OUTPUTS); ++i)
    same &= memcmp(first[i], second[i], tensor_bytes(m, RL_OUTPUTS, i)) == 0;
  printf("\nran twice, %s; ridgeline %s\n", same ? "the same bits" : "DIFFERENT BITS", rl_version());
  rl_unload(m);
  return same ? 0 : 4;
}
