# Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds the texts of *.json in this folder into rl_cost, so that no file is needed at run time.
file(GLOB ridgeline_targets CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.json)
list(SORT ridgeline_targets)
set(ridgeline_texts "")
foreach(file ${ridgeline_targets})
  file(READ ${file} text)
  string(APPEND ridgeline_texts "    R\"json(${text})json\",\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/cost/TargetTexts.cpp @ONLY CONTENT
"// Made from passes/cost/targets/*.json.
#include <cstddef>
namespace rl::cost::detail {
extern const char *const kTargetTexts[];
extern const size_t kTargetTextCount;
const char *const kTargetTexts[] = {
@ridgeline_texts@};
const size_t kTargetTextCount = sizeof(kTargetTexts) / sizeof(kTargetTexts[0]);
} // namespace rl::cost::detail
")
target_sources(rl_cost PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/cost/TargetTexts.cpp)
