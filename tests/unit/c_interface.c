/* Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions. */
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/*
 * ridgeline.h as plain C11 against libridgeline_runtime.so: it compiles without a warning, links, and answers wrong calls
 * with codes and texts. Built with -pedantic-errors.
 */
#include "ridgeline.h"

#include <stdio.h>
#include <string.h>

static int failures;
#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                  \
      ++failures;                                                                                                      \
    }                                                                                                                  \
  } while (0)

int main(void) {
  rl_module *module = NULL;
  CHECK(strcmp(rl_last_error(), "") == 0);
  CHECK(strlen(rl_version()) >= 5);
  CHECK(rl_load("/nonexistent", &module) == RL_INVALID);
  CHECK(module == NULL);
  CHECK(strstr(rl_last_error(), "/nonexistent/manifest.json") != NULL);
  CHECK(rl_load(NULL, &module) == RL_USAGE);
  CHECK(rl_count(NULL, RL_INPUTS) == -1);
  CHECK(rl_tensor(NULL, RL_OUTPUTS, 0, NULL, NULL, NULL, NULL) == RL_USAGE);
  CHECK(rl_bind(NULL, "w", NULL, 0) == RL_USAGE);
  CHECK(rl_read(NULL, "w", NULL, 0) == RL_USAGE);
  CHECK(rl_run(NULL, NULL, NULL, NULL) == RL_USAGE);
  CHECK(rl_kernel_count(NULL) == -1);
  CHECK(rl_last_error()[0] != '\0');
  rl_unload(NULL);
  return failures != 0;
}
