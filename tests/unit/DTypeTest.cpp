// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element types: sizes, names, aliases, categories, and how types are printed.
#include "runtime/base/DType.h"
#include "runtime/base/Result.h"

#include <gtest/gtest.h>

using namespace rl;

namespace {

struct Row {
  DType type;
  size_t size;
  const char *name, *torch, *safetensors;
  bool f8, isFloat, arithmetic, integer;
};

const Row kRows[] = {
    {DType::F32, 4, "f32", "float32", "F32", false, true, true, false},
    {DType::F16, 2, "f16", "float16", "F16", false, true, true, false},
    {DType::BF16, 2, "bf16", "bfloat16", "BF16", false, true, true, false},
    {DType::F8E4M3, 1, "f8e4m3", "float8_e4m3fn", "F8_E4M3", true, true, false, false},
    {DType::F8E5M2, 1, "f8e5m2", "float8_e5m2", "F8_E5M2", true, true, false, false},
    {DType::F8E8M0, 1, "f8e8m0", "float8_e8m0fnu", "F8_E8M0", true, true, false, false},
    {DType::I8, 1, "i8", "int8", "I8", false, false, false, true},
    {DType::U8, 1, "u8", "uint8", "U8", false, false, false, true},
    {DType::I32, 4, "i32", "int32", "I32", false, false, false, true},
    {DType::I64, 8, "i64", "int64", "I64", false, false, false, true},
    {DType::Bool, 1, "bool", "bool", "BOOL", false, false, false, false},
};

TEST(DType, EveryTypeHasItsRow) { EXPECT_EQ(std::size(kRows), static_cast<size_t>(kDTypeCount)); }

TEST(DType, SizesNamesAndAliases) {
  for (const Row &row : kRows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(dtypeSize(row.type), row.size);
    EXPECT_STREQ(dtypeName(row.type), row.name);
    EXPECT_STREQ(safetensorsName(row.type), row.safetensors);
    EXPECT_EQ(parseDType(row.name), row.type);
    EXPECT_EQ(parseDType(row.torch), row.type);
    EXPECT_EQ(parseDType(row.safetensors), row.type);
  }
}

TEST(DType, Categories) {
  for (const Row &row : kRows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(isF8(row.type), row.f8);
    EXPECT_EQ(isFloat(row.type), row.isFloat);
    EXPECT_EQ(isArithmeticFloat(row.type), row.arithmetic);
    EXPECT_EQ(isInteger(row.type), row.integer);
  }
}

TEST(DType, OtherSpellingsAreRefused) {
  for (const char *text : {"",         "f64",         "float64",   "F64",  "i16",           "I16",  "int16",
                           "u32",      "complex64",   "FLOAT32",   "Bf16", " f32",          "f32 ", "f8",
                           "f8e4m3fn", "float8_e4m3", "F8_E4M3FN", "Bool", "torch.float32", "f3",   "f322"})
    EXPECT_EQ(parseDType(text), std::nullopt) << '"' << text << '"';
  EXPECT_EQ(parseDType(std::string_view("f32\0", 4)), std::nullopt);
}

TEST(TensorType, ElementsAndBytes) {
  EXPECT_EQ((TensorType{DType::F32, {}}).elements(), 1);
  EXPECT_EQ((TensorType{DType::F32, {}}).bytes(), 4);
  EXPECT_EQ((TensorType{DType::I64, {3, 0, 5}}).elements(), 0);
  EXPECT_EQ((TensorType{DType::I64, {3, 0, 5}}).bytes(), 0);
  EXPECT_EQ((TensorType{DType::BF16, {3, 5, 7}}).bytes(), 210);
  EXPECT_EQ((TensorType{DType::I64, {65536, 65536}}).bytes(), int64_t{8} << 32);
  EXPECT_EQ((TensorType{DType::I64, {2, 3}}).rank(), 2);
}

TEST(TensorType, Printing) {
  EXPECT_EQ(str(std::vector<int64_t>{}), "[]");
  EXPECT_EQ(str(std::vector<int64_t>{0}), "[0]");
  EXPECT_EQ(str(std::vector<int64_t>{-1, 4096}), "[-1, 4096]");
  EXPECT_EQ(str(TensorType{DType::BF16, {512, 4096}}), "bf16 [512, 4096]");
  EXPECT_EQ(str(TensorType{DType::F8E8M0, {}}), "f8e8m0 []");
}

TEST(TensorType, EqualityIsTypeAndShape) {
  EXPECT_EQ((TensorType{DType::F32, {2}}), (TensorType{DType::F32, {2}}));
  EXPECT_NE((TensorType{DType::F32, {2}}), (TensorType{DType::F16, {2}}));
  EXPECT_NE((TensorType{DType::F32, {2}}), (TensorType{DType::F32, {2, 1}}));
}

TEST(Error, PrintsItsPlace) {
  EXPECT_EQ(invalid("/nodes/2", "no").str("g.json"), "g.json:/nodes/2: no");
  EXPECT_EQ(invalid("/nodes/2", "no").str(), "/nodes/2: no");
  EXPECT_EQ(invalid("", "no").str("g.json"), "g.json: no");
  EXPECT_EQ(invalid("", "no").str(), "no");
  Error error = invalid("/x", "no");
  error.file = "in.safetensors";
  EXPECT_EQ(error.str("g.json"), "in.safetensors:/x: no");
  EXPECT_EQ(static_cast<int>(error.code), 2);
  EXPECT_EQ(static_cast<int>(unsupported("", "").code), 3);
}

} // namespace
