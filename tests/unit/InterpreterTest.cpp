// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every op of the format through the reference interpreter, on cases worked by hand: edge values, odd shapes, empty and
// rank-0 tensors, errors of the data, and the two ways of rounding between nodes.
#include "InterpreterHarness.h"

TEST(Unary, Arithmetic) {
  unary("abs", {-1.5, 0, -0.0, -kInf, kNan}, {1.5, 0, 0, kInf, kNan});
  unary("neg", {-1.5, 0, -0.0, kInf, kNan}, {1.5, -0.0, 0, -kInf, kNan});
  unary("sign", {-2, -0.0, 0, 1e-45, kInf, kNan}, {-1, 0, 0, 1, 1, kNan});
  unary("square", {-3, 1e-30, kInf, -0.0}, {9, 0, kInf, 0});
  unary("sqrt", {4, 2, -0.0, -1, kInf}, {2, f32(std::sqrt(2.0)), -0.0, kNan, kInf});
  unary("rsqrt", {4, 0, kInf, -1}, {0.5, kInf, 0, kNan});
  unary("reciprocal", {4, 3, -0.0, kInf, kNan}, {0.25, f32(1 / 3.0), -kInf, 0, kNan});
  unary("relu", {-1, -0.0, 3, kNan, -kInf, kInf}, {0, 0, 3, kNan, 0, kInf});
  unary("floor", {-0.5, 1.5, -0.0, kInf}, {-1, 1, -0.0, kInf});
  unary("ceil", {-0.5, 1.5, kNan}, {-0.0, 2, kNan});
  unary("trunc", {-1.5, 1.5, -kInf}, {-1, 1, -kInf});
  unary("round", {0.5, 1.5, 2.5, -0.5, -1.5, 8388609, kNan}, {0, 2, 2, -0.0, -2, 8388609, kNan});
  unary("neg", {1e-45}, {-1.401298464324817e-45}); // subnormals stay
}

TEST(Unary, Transcendental) {
  const double e = 1e-7;
  unary("exp", {0, 1, -kInf, kInf, kNan, 89, -110}, {1, std::exp(1.0), 0, kInf, kNan, kInf, 0}, e);
  unary("exp2", {3, -1, 0.5}, {8, 0.5, std::exp2(0.5)}, e);
  unary("expm1", {f32(1e-8), -kInf}, {f32(1e-8), -1}, e);
  unary("log", {1, 0, -1, kInf}, {0, -kInf, kNan, kInf}, e);
  unary("log2", {8, 1e-45}, {3, -149}, e);
  unary("log1p", {f32(1e-8), -1, -2}, {f32(1e-8), -kInf, kNan}, e);
  unary("sin", {0, 1, kInf}, {0, std::sin(1.0), kNan}, e);
  unary("cos", {0, 1, -kInf}, {1, std::cos(1.0), kNan}, e);
  unary("tanh", {0.5, kInf, -kInf, 1e-10}, {std::tanh(0.5), 1, -1, 1e-10}, e);
  unary("sigmoid", {0, -kInf, kInf, -100, kNan}, {0.5, 0, 1, std::exp(-100.0), kNan}, e);
  unary("erf", {0.5, kInf, -kInf}, {std::erf(0.5), 1, -1}, e);
  unary("silu", {1, 0, 20, kInf, -80},
        {1 / (1 + std::exp(-1.0)), 0, 20 / (1 + std::exp(-20.0)), kInf, -80 * std::exp(-80.0)}, e);
  unary("softplus", {0, 100, -100, -kInf, kInf, kNan}, {std::log(2.0), 100, std::exp(-100.0), 0, kInf, kNan}, e);
  unary("gelu", {1, -1, 0, -10, kInf}, {0.841344746, -0.158655254, 0, -10 * 0.5 * std::erfc(10 / std::sqrt(2.0)), kInf},
        1e-6);
  unary("gelu", {1, -1, -10}, {0.8411919906, -0.1588080094, -1.20409e-37}, 1e-5, R"("approximate": "tanh")");
}

TEST(Unary, Predicates) {
  const In x{"f32", {5}, {kNan, kInf, -kInf, 0, 1e-45}};
  check("isnan", {x}, "", {"bool", {5}, {1, 0, 0, 0, 0}});
  check("isinf", {x}, "", {"bool", {5}, {0, 1, 1, 0, 0}});
  check("isfinite", {x}, "", {"bool", {5}, {0, 0, 0, 1, 1}});
  check("logical_not", {x}, "", {"bool", {5}, {0, 0, 0, 1, 0}});
  check("isfinite", {{"i32", {1}, {7}}}, "", {"bool", {1}, {1}});
  check("bitwise_not", {{"i8", {3}, {0, -1, 127}}}, "", {"i8", {3}, {-1, 0, -128}});
  check("bitwise_not", {{"u8", {2}, {0, 255}}}, "", {"u8", {2}, {255, 0}});
  check("bitwise_not", {{"bool", {2}, {0, 1}}}, "", {"bool", {2}, {1, 0}});
}

TEST(Unary, Integers) {
  check("abs", {{"i8", {2}, {-128, -5}}}, "", {"i8", {2}, {-128, 5}});
  check("neg", {{"i32", {2}, {-2147483648.0, 5}}}, "", {"i32", {2}, {-2147483648.0, -5}});
  check("neg", {{"u8", {2}, {1, 0}}}, "", {"u8", {2}, {255, 0}});
  check("square", {{"i8", {2}, {16, -3}}}, "", {"i8", {2}, {0, 9}});
  check("sign", {{"i64", {3}, {-9, 0, 9}}}, "", {"i64", {3}, {-1, 0, 1}});
  check("relu", {{"i32", {2}, {-9, 9}}}, "", {"i32", {2}, {0, 9}});
  check("floor", {{"i32", {1}, {-9}}}, "", {"i32", {1}, {-9}});
  check("exp", {{"i32", {1}, {0}}}, "", {"f32", {1}, {1}});
  EXPECT_EQ(longsOf(evalAll("abs", {longs({1}, {INT64_MIN})})[0])[0], INT64_MIN);
  EXPECT_EQ(longsOf(evalAll("square", {longs({1}, {INT64_C(1) << 32})})[0])[0], 0);
}

TEST(Unary, Cast) {
  check("cast", {{"f32", {4}, {kNan, 300, -300, -1.9}}}, R"("dtype": "i8")", {"i8", {4}, {0, 127, -128, -1}});
  check("cast", {{"i32", {3}, {300, -1, 128}}}, R"("dtype": "u8")", {"u8", {3}, {44, 255, 128}});
  check("cast", {{"f32", {3}, {kNan, -0.0, 0.1}}}, R"("dtype": "bool")", {"bool", {3}, {1, 0, 1}});
  check("cast", {{"bool", {2}, {1, 0}}}, R"("dtype": "bf16")", {"bf16", {2}, {1, 0}});
  check("cast", {{"f32", {3}, {1e9, kInf, kNan}}}, R"("dtype": "f8e4m3")", {"f8e4m3", {3}, {448, 448, kNan}});
  check("cast", {{"f32", {3}, {1e9, 464, 464.1}}}, R"("dtype": "f8e4m3", "saturate": false)",
        {"f8e4m3", {3}, {kNan, 448, kNan}});
  check("cast", {{"f32", {2}, {1e9, -kInf}}}, R"("dtype": "f8e5m2", "saturate": false)",
        {"f8e5m2", {2}, {kInf, -kInf}});
  check("cast", {{"f8e5m2", {2}, {0.25, 57344}}}, R"("dtype": "f16")", {"f16", {2}, {0.25, 57344}});
  check("cast", {{"f8e4m3", {1}, {-448}}}, R"("dtype": "i32")", {"i32", {1}, {-448}});
  check("cast", {{"i32", {2}, {16777217 + 65536, 70000}}}, R"("dtype": "bf16")", {"bf16", {2}, {16908288, 70144}});
  check("cast", {{"i32", {1}, {70000}}}, R"("dtype": "f16")", {"f16", {1}, {kInf}});
  EXPECT_EQ(longsOf(evalAll("cast", {longs({2}, {INT64_MAX, INT64_MIN})}, R"("dtype": "i32")")[0]),
            (std::vector<int64_t>{-1, 0}));
}

TEST(Binary, Floats) {
  binary("f32", "add", {1, kInf, kNan}, {2, -kInf, 1}, {3, kNan, kNan});
  binary("f32", "sub", {1, 0}, {2, 0}, {-1, 0});
  binary("f32", "mul", {3, kInf, 1e-40}, {2, 0, 0.5}, {6, kNan, f32(0.5 * f32(1e-40))});
  binary("f32", "div", {1, 1, 0, -1}, {3, 0, 0, kInf}, {f32(1 / 3.0), kInf, kNan, -0.0});
  // 6 / f32(0.1) rounds to 60 in f32, and lies below it.
  binary("f32", "floor_divide", {6, -7, 7, 1, -1, kInf, 3, 0}, {0.1, 2, -2, kInf, kInf, 2, 0, 0},
         {59, -4, -4, 0, -1, kNan, kInf, kNan});
  binary("f32", "fmod", {7, -7, 7, -7, 5, kInf, 1, -4}, {3, 3, -3, -3, kInf, 2, 0, 2},
         {1, -1, 1, -1, 5, kNan, kNan, -0.0});
  binary("f32", "remainder", {7, -7, 7, -7, 5, -5, kInf, 1, -4, 4}, {3, 3, -3, -3, kInf, kInf, 2, 0, 2, -2},
         {1, 2, -2, -1, 5, kInf, kNan, kNan, 0, -0.0});
  binary("f32", "pow", {2, -2, 0, kNan, -8}, {10, 3, 0, 0, 0.5}, {1024, -8, 1, 1, kNan});
  binary("f32", "atan2", {0, 1}, {1, 0}, {0, f32(std::acos(0.0))});
  binary("f32", "maximum", {1, kNan, 1, -0.0, -kInf}, {2, 1, kNan, 0, -5}, {2, kNan, kNan, 0, -5});
  binary("f32", "minimum", {1, kNan, 1, 0, kInf}, {2, 1, kNan, -0.0, 5}, {1, kNan, kNan, -0.0, 5});
}

TEST(Binary, Integers) {
  binary("i8", "add", {127, -128}, {1, -1}, {-128, 127});
  binary("u8", "sub", {0, 5}, {1, 3}, {255, 2});
  binary("i32", "mul", {65536, 3}, {65536, -4}, {0, -12});
  binary("i32", "div", {1, -7, 1, 0}, {2, 2, 0, 0}, {0.5, -3.5, kInf, kNan}, "f32");
  binary("i32", "floor_divide", {7, -7, 7, -7, 5, -2147483648.0}, {2, 2, -2, -2, 0, -1},
         {3, -4, -4, 3, 0, -2147483648.0});
  binary("i32", "remainder", {7, -7, 7, -7, 5, -2147483648.0}, {3, 3, -3, -3, 0, -1}, {1, 2, -2, -1, 0, 0});
  binary("i32", "fmod", {7, -7, 7, -7, 5, -2147483648.0}, {3, 3, -3, -3, 0, -1}, {1, -1, 1, -1, 0, 0});
  binary("i32", "pow", {2, -1, -1, 1, 0, 5, 3, 2}, {10, -3, -2, -9, -1, -1, 0, 32}, {1024, -1, 1, 1, 0, 0, 1, 0});
  binary("i8", "maximum", {-5, 7}, {3, -8}, {3, 7});
  binary("u8", "minimum", {200, 7}, {3, 8}, {3, 7});
  binary("i32", "bitwise_and", {12, -1}, {10, 255}, {8, 255});
  binary("i32", "bitwise_or", {12, 0}, {10, 255}, {14, 255});
  binary("i32", "bitwise_xor", {12, -1}, {10, 255}, {6, -256});
  binary("bool", "bitwise_xor", {0, 1, 1}, {1, 1, 0}, {1, 0, 1});
  binary("bool", "add", {0, 1, 1}, {0, 1, 0}, {0, 1, 1});
  const std::vector<HostTensor> extremes = {longs({3}, {INT64_MIN, INT64_MAX, INT64_MIN}), longs({3}, {-1, 1, 1})};
  EXPECT_EQ(longsOf(evalAll("floor_divide", extremes)[0]), (std::vector<int64_t>{INT64_MIN, INT64_MAX, INT64_MIN}));
  EXPECT_EQ(longsOf(evalAll("remainder", extremes)[0]), (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(longsOf(evalAll("add", extremes)[0]), (std::vector<int64_t>{INT64_MAX, INT64_MIN, INT64_MIN + 1}));
  // Integers that f32 does not tell apart compare as integers.
  const std::vector<HostTensor> close = {longs({2}, {INT64_MAX, 16777217}), longs({2}, {INT64_MAX - 1, 16777216})};
  EXPECT_EQ(longsOf(evalAll("eq", close)[0]), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(longsOf(evalAll("gt", close)[0]), (std::vector<int64_t>{1, 1}));
}

TEST(Binary, ComparisonsAndLogic) {
  const Values a{1, 2, kNan, -0.0}, b{2, 1, kNan, 0};
  binary("f32", "eq", a, b, {0, 0, 0, 1}, "bool");
  binary("f32", "ne", a, b, {1, 1, 1, 0}, "bool");
  binary("f32", "lt", a, b, {1, 0, 0, 0}, "bool");
  binary("f32", "le", a, b, {1, 0, 0, 1}, "bool");
  binary("f32", "gt", a, b, {0, 1, 0, 0}, "bool");
  binary("f32", "ge", a, b, {0, 1, 0, 1}, "bool");
  binary("f32", "logical_and", {kNan, 0, 1}, {1, 1, 1}, {1, 0, 1}, "bool");
  binary("i64", "logical_or", {0, 0, 5}, {0, 2, 0}, {0, 1, 1}, "bool");
  binary("bool", "logical_xor", {0, 1, 1}, {1, 1, 0}, {1, 0, 1}, "bool");
}

TEST(Binary, PromotionAndLiterals) {
  check("add", {{"bf16", {1}, {1}}, {"f16", {1}, {0.0009765625}}}, "", {"f32", {1}, {1.0009765625}});
  check("add", {{"i32", {1}, {1}}, {"u8", {1}, {255}}}, "", {"i32", {1}, {256}});
  check("mul", {{"i32", {2}, {3, -1}}}, "", {"f32", {2}, {1.5, -0.5}}, 0, "x0, 0.5");
  check("mul", {{"bool", {2}, {0, 1}}}, "", {"i64", {2}, {0, 7}}, 0, "x0, 7");
  check("sub", {{"bf16", {2}, {1, 2}}}, "", {"bf16", {2}, {0, -1}}, 0, "1, x0");
  // A literal is not rounded to the type of the tensor beside it: f16(2049) is 2048.
  check("sub", {{"f16", {1}, {2048}}}, "", {"f16", {1}, {-1}}, 0, "x0, 2049");
  check("gt", {{"f16", {1}, {2048}}}, "", {"bool", {1}, {0}}, 0, "x0, 2048.5");
  check("lt", {{"bf16", {1}, {1}}}, "", {"bool", {1}, {1}}, 0, "x0, 1.001");
  check("div", {{"i32", {1}, {1}}}, "", {"f32", {1}, {0.25}}, 0, "x0, 4");
}

TEST(Binary, Broadcasting) {
  check("add", {{"f32", {2, 1, 3}, {0, 1, 2, 10, 11, 12}}, {"f32", {2, 1}, {100, 200}}}, "",
        {"f32", {2, 2, 3}, {100, 101, 102, 200, 201, 202, 110, 111, 112, 210, 211, 212}});
  check("mul", {{"i32", {}, {3}}, {"i32", {2, 2}, {1, 2, 3, 4}}}, "", {"i32", {2, 2}, {3, 6, 9, 12}});
  check("add", {{"f32", {}, {3}}, {"f32", {}, {4}}}, "", {"f32", {}, {7}});
  check("add", {{"f32", {1}, {3}}, {"f32", {0, 5}, {}}}, "", {"f32", {0, 5}, {}});
  check("sub", {{"i32", {1, 3}, {1, 2, 3}}, {"i32", {3, 1}, {1, 2, 3}}}, "",
        {"i32", {3, 3}, {0, 1, 2, -1, 0, 1, -2, -1, 0}});
}

TEST(Ternary, WhereAndClamp) {
  check("where", {{"bool", {3, 1}, {1, 0, 1}}, {"f32", {2}, {1, 2}}, {"f32", {}, {kNan}}}, "",
        {"f32", {3, 2}, {1, 2, kNan, kNan, 1, 2}});
  check("where", {{"bool", {2}, {1, 0}}, {"i32", {2}, {5, 6}}}, "", {"i32", {2}, {5, -1}}, 0, "x0, x1, -1");
  check("where", {{"bool", {2}, {1, 0}}}, "", {"f32", {2}, {0.5, 2}}, 0, "x0, 0.5, 2");
  check("clamp", {{"f32", {5}, {-2, 0.5, 2, kNan, kInf}}}, R"("min": -1, "max": 1)",
        {"f32", {5}, {-1, 0.5, 1, kNan, 1}});
  check("clamp", {{"f32", {2}, {-2, 5}}}, R"("min": 0)", {"f32", {2}, {0, 5}});
  check("clamp", {{"f32", {2}, {-2, 5}}}, R"("min": 3, "max": 1)", {"f32", {2}, {1, 1}});
  check("clamp", {{"i8", {3}, {-100, 3, 100}}}, R"("min": -5, "max": 5)", {"i8", {3}, {-5, 3, 5}});
}

TEST(Layout, MovesElements) {
  const In x{"i32", {2, 3}, {0, 1, 2, 3, 4, 5}};
  check("reshape", {x}, R"("shape": [3, -1])", {"i32", {3, 2}, {0, 1, 2, 3, 4, 5}});
  check("permute", {x}, R"("dims": [1, 0])", {"i32", {3, 2}, {0, 3, 1, 4, 2, 5}});
  check("permute", {{"f32", {2, 1, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}}, R"("dims": [3, 0, 1, 2])",
        {"f32", {2, 2, 1, 3}, {0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11}});
  check("expand", {{"f32", {2, 1}, {1, 2}}}, R"("shape": [2, 2, 3])",
        {"f32", {2, 2, 3}, {1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2}});
  check("unsqueeze", {x}, R"("dim": -1)", {"i32", {2, 3, 1}, {0, 1, 2, 3, 4, 5}});
  check("squeeze", {{"bool", {1, 2}, {1, 0}}}, R"("dim": 0)", {"bool", {2}, {1, 0}});
  check("slice", {x}, R"("dim": 1, "start": 2, "end": -9, "step": -2)", {"i32", {2, 2}, {2, 0, 5, 3}});
  check("slice", {x}, R"("dim": 0, "start": 1, "end": 100)", {"i32", {1, 3}, {3, 4, 5}});
  check("slice", {x}, R"("dim": 0, "start": 2, "end": 1)", {"i32", {0, 3}, {}});
  check("flip", {x}, R"("dims": [0, 1])", {"i32", {2, 3}, {5, 4, 3, 2, 1, 0}});
  check("flip", {{"f32", {0, 3}, {}}}, R"("dims": [0])", {"f32", {0, 3}, {}});
  check("cat", {x, {"i32", {2, 0}, {}}, {"i32", {2, 1}, {8, 9}}}, R"("dim": 1)",
        {"i32", {2, 4}, {0, 1, 2, 8, 3, 4, 5, 9}});
  check("cat", {{"f8e4m3", {1}, {2}}, {"f8e4m3", {2}, {3, kNan}}}, R"("dim": 0)", {"f8e4m3", {3}, {2, 3, kNan}});
  check("pad", {x}, R"("low": [1, 0], "high": [0, 2], "value": 7)",
        {"i32", {3, 5}, {7, 7, 7, 7, 7, 0, 1, 2, 7, 7, 3, 4, 5, 7, 7}});
  check("pad", {{"f32", {0}, {}}}, R"("low": [1], "high": [1], "value": 0.5)", {"f32", {2}, {0.5, 0.5}});
  check("reshape", {{"f32", {}, {4}}}, R"("shape": [1, 1])", {"f32", {1, 1}, {4}});
  check("permute", {{"f32", {}, {4}}}, R"("dims": [])", {"f32", {}, {4}});
}

TEST(Layout, KeepsBits) {
  // -0 and NaN pass through moves; an input that is an output keeps even its NaN's payload.
  check("flip", {{"f32", {3}, {-0.0, kNan, 1}}}, R"("dims": [0])", {"f32", {3}, {1, kNan, -0.0}});
  HostTensor odd;
  odd.type = {DType::BF16, {2}};
  odd.data = {std::byte{0x81}, std::byte{0x7f}, std::byte{0x01}, std::byte{0x80}};
  auto result = runGraph({odd}, "", "x0");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ((*result)[0].data, odd.data);
}

TEST(Creation, FullAndIota) {
  check("full", {}, R"("shape": [2, 2], "value": 1.5, "dtype": "bf16")", {"bf16", {2, 2}, {1.5, 1.5, 1.5, 1.5}});
  check("full", {}, R"("shape": [], "value": true, "dtype": "bool")", {"bool", {}, {1}});
  check("full", {}, R"("shape": [0], "value": 3, "dtype": "i8")", {"i8", {0}, {}});
  check("iota", {}, R"("shape": [2, 3], "dim": 1, "dtype": "i64")", {"i64", {2, 3}, {0, 1, 2, 0, 1, 2}});
  check("iota", {}, R"("shape": [2, 3], "dim": 0, "dtype": "f32")", {"f32", {2, 3}, {0, 0, 0, 1, 1, 1}});
  Values last = valuesOf(evalOne("iota", {}, R"("shape": [300], "dim": 0, "dtype": "u8")"));
  EXPECT_EQ(last[255], 255);
  EXPECT_EQ(last[256], 0);
}

TEST(Reduction, SumsAndProducts) {
  const In x{"f32", {2, 3}, {1, 2, 3, 4, 5, 6}};
  check("sum", {x}, "", {"f32", {}, {21}});
  check("sum", {x}, R"("dims": [0])", {"f32", {3}, {5, 7, 9}});
  check("sum", {x}, R"("dims": [-1], "keepdim": true)", {"f32", {2, 1}, {6, 15}});
  check("sum", {{"f32", {2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}}, R"("dims": [0, 2])",
        {"f32", {3}, {14, 22, 30}});
  check("sum", {{"f32", {0, 2}, {}}}, R"("dims": [0])", {"f32", {2}, {0, 0}});
  check("sum", {{"f32", {}, {5}}}, "", {"f32", {}, {5}});
  check("sum", {{"i8", {3}, {127, 127, 127}}}, "", {"i64", {}, {381}});
  check("sum", {{"bool", {3}, {1, 0, 1}}}, "", {"i64", {}, {2}});
  check("sum", {{"bf16", {4}, {256, 1, 1, 1}}}, "", {"bf16", {}, {260}}); // 259 to even; 256 + 1 would stay in bf16
  check("prod", {x}, R"("dims": [1])", {"f32", {2}, {6, 120}});
  check("prod", {{"f32", {4}, {1e30, 1e30, 1e-30, 1e-30}}}, "", {"f32", {}, {1}}, 1e-6);
  check("prod", {{"i32", {0}, {}}}, "", {"i64", {}, {1}});
  check("prod", {{"u8", {2}, {200, 200}}}, "", {"i64", {}, {40000}});
  check("mean", {x}, R"("dims": [0])", {"f32", {3}, {2.5, 3.5, 4.5}});
  check("mean", {{"i32", {2}, {1, 2}}}, "", {"f32", {}, {1.5}});
  check("mean", {{"f32", {2, 0}, {}}}, R"("dims": [1])", {"f32", {2}, {kNan, kNan}});
  EXPECT_EQ(longsOf(evalAll("sum", {longs({2}, {INT64_MAX, 1})})[0])[0], INT64_MIN);
}

TEST(Reduction, Extremes) {
  const In x{"f32", {2, 3}, {1, kNan, 3, 4, 6, 6}};
  check("amax", {x}, R"("dims": [1])", {"f32", {2}, {kNan, 6}});
  check("amin", {x}, R"("dims": [1])", {"f32", {2}, {kNan, 4}});
  check("argmax", {x}, R"("dim": 1)", {"i64", {2}, {1, 1}});
  check("argmin", {x}, R"("dim": -1)", {"i64", {2}, {1, 0}});
  check("argmax", {x}, R"("dim": 0)", {"i64", {3}, {1, 0, 1}});
  check("argmin", {{"i8", {4}, {3, -8, -8, 0}}}, R"("dim": 0)", {"i64", {}, {1}});
  check("argmax", {{"f32", {3}, {-kInf, -kInf, -kInf}}}, R"("dim": 0)", {"i64", {}, {0}});
  check("amax", {{"f32", {2}, {-0.0, 0}}}, "", {"f32", {}, {0}});
  check("amin", {{"f32", {2}, {0, -0.0}}}, "", {"f32", {}, {-0.0}});
  check("amax", {{"u8", {3}, {1, 200, 3}}}, "", {"u8", {}, {200}});
  check("amax", {{"f32", {0, 2}, {}}}, R"("dims": [1])", {"f32", {0}, {}});
  check("any", {{"f32", {2, 2}, {0, kNan, 0, -0.0}}}, R"("dims": [1])", {"bool", {2}, {1, 0}});
  check("all", {{"i32", {2, 2}, {1, 2, 0, 3}}}, R"("dims": [1])", {"bool", {2}, {1, 0}});
  check("any", {{"bool", {0}, {}}}, "", {"bool", {}, {0}});
  check("all", {{"bool", {0}, {}}}, "", {"bool", {}, {1}});
}

TEST(Reduction, VarianceAndLogSumExp) {
  check("var", {{"f32", {4}, {1, 2, 3, 4}}}, "", {"f32", {}, {5.0 / 3}}, 1e-7);
  check("var", {{"f32", {4}, {1, 2, 3, 4}}}, R"("correction": 0)", {"f32", {}, {1.25}});
  check("var", {{"f32", {3}, {1e8, 1e8 + 8, 1e8 + 16}}}, "", {"f32", {}, {64}});
  check("var", {{"f32", {1}, {3}}}, "", {"f32", {}, {kNan}});
  check("var", {{"f32", {0}, {}}}, R"("correction": 0)", {"f32", {}, {kNan}});
  check("var", {{"f32", {2}, {1, kInf}}}, "", {"f32", {}, {kNan}});
  check("logsumexp", {{"f32", {3, 2}, {1000, 1000, -kInf, -kInf, kInf, 0}}}, R"("dims": [1])",
        {"f32", {3}, {1000 + std::log(2.0), -kInf, kInf}}, 1e-7);
  check("logsumexp", {{"f32", {2}, {kNan, 0}}}, "", {"f32", {}, {kNan}});
}

TEST(Norm, Softmax) {
  const In x{"f32", {3, 2}, {0, 0, -kInf, -kInf, 1000, -kInf}};
  check("softmax", {x}, R"("dim": 1)", {"f32", {3, 2}, {0.5, 0.5, kNan, kNan, 1, 0}});
  check("log_softmax", {x}, R"("dim": 1)", {"f32", {3, 2}, {-std::log(2.0), -std::log(2.0), kNan, kNan, 0, -kInf}},
        1e-7);
  check("softmax", {{"f32", {2, 2}, {0, 5, 0, 5}}}, R"("dim": 0)", {"f32", {2, 2}, {0.5, 0.5, 0.5, 0.5}});
  check("softmax", {{"f32", {2}, {kNan, 1}}}, R"("dim": 0)", {"f32", {2}, {kNan, kNan}});
  check("softmax", {{"f16", {2, 0}, {}}}, R"("dim": 1)", {"f16", {2, 0}, {}});
}

TEST(Norm, LayerAndRms) {
  const double r = 1 / std::sqrt(1 + 1e-5);
  check("layer_norm", {{"f32", {2, 2}, {1, 3, 7, 7}}}, "", {"f32", {2, 2}, {-r, r, 0, 0}}, 1e-7);
  check("layer_norm", {{"f32", {2}, {1, 3}}, {"f32", {2}, {2, 3}}, {"f32", {2}, {10, 20}}}, R"("eps": 0)",
        {"f32", {2}, {8, 23}});
  check("rms_norm", {{"f32", {1, 2}, {3, 4}}, {"f32", {2}, {1, 2}}}, R"("eps": 0)",
        {"f32", {1, 2}, {3 / std::sqrt(12.5), 8 / std::sqrt(12.5)}}, 1e-7);
  check("rms_norm", {{"f32", {2}, {0, 0}}}, "", {"f32", {2}, {0, 0}});
  check("layer_norm", {{"bf16", {0, 4}, {}}}, "", {"bf16", {0, 4}, {}});
}

TEST(Matrix, Matmul) {
  const In a{"f32", {2, 3}, {1, 2, 3, 4, 5, 6}}, b{"f32", {3, 2}, {1, 0, 0, 1, 1, 1}};
  check("matmul", {a, b}, "", {"f32", {2, 2}, {4, 5, 10, 11}});
  check("matmul", {a, a}, R"("transpose_b": true)", {"f32", {2, 2}, {14, 32, 32, 77}});
  check("matmul", {a, a}, R"("transpose_a": true)", {"f32", {3, 3}, {17, 22, 27, 22, 29, 36, 27, 36, 45}});
  check("matmul", {{"f32", {3}, {1, 2, 3}}, {"f32", {3}, {4, 5, 6}}}, "", {"f32", {}, {32}});
  check("matmul", {{"f32", {3}, {1, 2, 3}}, b}, "", {"f32", {2}, {4, 5}});
  check("matmul", {a, {"f32", {3}, {1, 1, 1}}}, "", {"f32", {2}, {6, 15}});
  check("matmul", {{"f32", {2, 1, 1, 2}, {1, 2, 3, 4}}, {"f32", {3, 2, 1}, {1, 0, 0, 1, 1, 1}}}, "",
        {"f32", {2, 3, 1, 1}, {1, 2, 3, 3, 4, 7}});
  check("matmul", {{"f32", {2, 0}, {}}, {"f32", {0, 2}, {}}}, "", {"f32", {2, 2}, {0, 0, 0, 0}});
  check("matmul", {{"f32", {0, 3}, {}}, b}, "", {"f32", {0, 2}, {}});
  check("matmul", {{"bf16", {1, 3}, {256, 1, 1}}, {"bf16", {3, 1}, {1, 1, 1}}}, "", {"bf16", {1, 1}, {258}});
  check("matmul", {{"f32", {1, 3}, {1e20, 1, -1e20}}, {"f32", {3, 1}, {1e20, 1, 1e20}}}, "", {"f32", {1, 1}, {0}});
  check("matmul", {{"f32", {1, 2}, {16777216, 1}}, {"f32", {2, 1}, {1, 1}}}, R"("out_dtype": "bf16")",
        {"bf16", {1, 1}, {16777216}});
  check("matmul", {{"i8", {1, 2}, {-128, -128}}, {"i8", {2, 1}, {-128, 127}}}, "", {"i32", {1, 1}, {128}});
  check("matmul", {{"i8", {1, 2}, {3, 4}}, {"i8", {2, 1}, {5, 6}}}, R"("out_dtype": "f32")", {"f32", {1, 1}, {39}});
  check("matmul", {{"f8e4m3", {1, 2}, {448, 4}}, {"f8e5m2", {2, 1}, {57344, 0.5}}}, R"("out_dtype": "f32")",
        {"f32", {1, 1}, {448.0 * 57344 + 2}});
  check("matmul", {{"f32", {1, 2}, {kInf, 1}}, {"f32", {2, 2}, {1, 0, 1, 1}}}, "", {"f32", {1, 2}, {kInf, kNan}});
}

TEST(Matrix, OddSizesAgainstPlainLoops) {
  const int64_t M = 261, K = 19, N = 37; // not multiples of the blocks of the product
  Values a, b, want;
  for (int64_t i = 0; i < M * K; ++i)
    a.push_back(static_cast<double>((i * 7 + 3) % 23 - 11));
  for (int64_t i = 0; i < K * N; ++i)
    b.push_back(static_cast<double>((i * 5 + 1) % 19 - 9));
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) {
      double s = 0;
      for (int64_t k = 0; k < K; ++k)
        s += a[static_cast<size_t>(m * K + k)] * b[static_cast<size_t>(k * N + n)];
      want.push_back(s);
    }
  check("matmul", {{"f32", {M, K}, a}, {"f32", {K, N}, b}}, "", {"f32", {M, N}, want});
  check("matmul", {{"i8", {M, K}, a}, {"i8", {K, N}, b}}, "", {"i32", {M, N}, want});
}

TEST(Matrix, WideIntegersWrap) {
  check("matmul", {{"i32", {1, 2}, {65536, 3}}, {"i32", {2, 1}, {65536, 5}}}, "", {"i32", {1, 1}, {15}});
  const int64_t K = 140000; // 127 * 127 * K is beyond i32
  HostTensor ones;
  ones.type = {DType::I8, {1, K}};
  ones.data.assign(static_cast<size_t>(K), std::byte{127});
  HostTensor column = ones;
  column.type.shape = {K, 1};
  EXPECT_EQ(longsOf(evalAll("matmul", {ones, column})[0])[0],
            static_cast<int32_t>(static_cast<uint32_t>(127 * 127 * K)));
}

TEST(Matrix, Linear) {
  const In w{"f32", {2, 3}, {1, 0, 1, 0, 1, 0}};
  check("linear", {{"f32", {3}, {1, 2, 3}}, w}, "", {"f32", {2}, {4, 2}});
  check("linear", {{"f32", {2, 1, 3}, {1, 2, 3, 4, 5, 6}}, w, {"f32", {2}, {10, 20}}}, "",
        {"f32", {2, 1, 2}, {14, 22, 20, 25}});
  check("linear", {{"bf16", {2, 0}, {}}, {"bf16", {2, 0}, {}}, {"bf16", {2}, {1, 2}}}, "",
        {"bf16", {2, 2}, {1, 2, 1, 2}});
  check("linear", {{"i8", {1, 1}, {100}}, {"i8", {1, 1}, {100}}, {"i32", {1}, {-1}}}, "", {"i32", {1, 1}, {9999}});
}

TEST(Indexing, Reads) {
  const In table{"f32", {3, 2}, {0, 1, 10, 11, 20, 21}};
  check("embedding", {table, {"i64", {2, 2}, {2, 0, 1, 1}}}, "", {"f32", {2, 2, 2}, {20, 21, 0, 1, 10, 11, 10, 11}});
  check("embedding", {table, {"i32", {}, {1}}}, "", {"f32", {2}, {10, 11}});
  check("embedding", {table, {"i64", {0}, {}}}, "", {"f32", {0, 2}, {}});
  check("embedding", {{"f8e5m2", {2, 1}, {kNan, 2}}, {"i64", {2}, {1, 0}}}, "", {"f8e5m2", {2, 1}, {2, kNan}});
  check("index_select", {table, {"i32", {3}, {1, 1, 0}}}, R"("dim": 1)",
        {"f32", {3, 3}, {1, 1, 0, 11, 11, 10, 21, 21, 20}});
  check("gather", {table, {"i64", {2, 2}, {1, 0, 0, 0}}}, R"("dim": 1)", {"f32", {2, 2}, {1, 0, 10, 10}});
  check("gather", {table, {"i64", {1, 2}, {2, 1}}}, R"("dim": 0)", {"f32", {1, 2}, {20, 11}});
}

TEST(Indexing, OutOfRange) {
  auto fails = [](const std::string &op, const std::vector<HostTensor> &in, const std::string &attrs,
                  const std::string &says) {
    auto result = runGraph(in, node("neg", "x0", "n") + ", " + node(op, "n, x1", "rows", attrs), "rows");
    ASSERT_FALSE(result.ok()) << op;
    EXPECT_EQ(result.error().code, Code::Invalid);
    EXPECT_EQ(result.error().pointer, "/nodes/1");
    EXPECT_NE(result.error().message.find(says), std::string::npos) << result.error().message;
    EXPECT_NE(result.error().message.find("rows"), std::string::npos) << result.error().message;
  };
  const HostTensor table = tensor({"f32", {3, 2}, {0, 1, 2, 3, 4, 5}});
  fails("embedding", {table, longs({2, 2}, {0, 1, 3, 0})}, "", "index 3 at position [1, 0]");
  fails("embedding", {table, longs({1}, {-1})}, "", "index -1 at position [0]");
  fails("index_select", {table, longs({2}, {0, 2})}, R"("dim": 1)", "index 2 at position [1]");
  fails("gather", {table, longs({1, 1}, {INT64_MIN})}, R"("dim": 0)", "index -9223372036854775808 at position [0, 0]");
  fails("cross_entropy", {table, longs({3}, {0, 1, 2})}, "", "target 2 at position [2]");
}

TEST(Attention, Masks) {
  // Two queries on two keys with equal scores: the mean of the values that a query may see.
  const In q{"f32", {1, 2, 2}, {0, 0, 0, 0}}, k{"f32", {1, 2, 2}, {1, 2, 3, 4}}, v{"f32", {1, 2, 1}, {10, 20}};
  const char *op = "scaled_dot_product_attention";
  check(op, {q, k, v}, "", {"f32", {1, 2, 1}, {15, 15}});
  check(op, {q, k, v}, R"("causal": true)", {"f32", {1, 2, 1}, {10, 15}});
  check(op, {q, k, v, {"bool", {2, 2}, {0, 1, 0, 0}}}, "", {"f32", {1, 2, 1}, {20, 0}});
  check(op, {q, k, v, {"f32", {2, 2}, {-kInf, -kInf, 0, -kInf}}}, "", {"f32", {1, 2, 1}, {0, 10}});
  check(op, {q, k, v, {"f32", {1, 2}, {0, std::log(3.0)}}}, "", {"f32", {1, 2, 1}, {17.5, 17.5}}, 1e-6);
  // What a mask takes out takes no part, whatever it holds.
  check(op, {q, {"f32", {1, 2, 2}, {kNan, 0, 1, 1}}, {"f32", {1, 2, 1}, {kInf, 20}}, {"bool", {2}, {0, 1}}}, "",
        {"f32", {1, 2, 1}, {20, 20}});
  check(op, {q, {"f32", {1, 2, 2}, {kNan, 0, 1, 1}}, v}, "", {"f32", {1, 2, 1}, {kNan, kNan}});
  check(op, {q, {"f32", {1, 0, 2}, {}}, {"f32", {1, 0, 3}, {}}}, "", {"f32", {1, 2, 3}, {0, 0, 0, 0, 0, 0}});
}

TEST(Attention, ScoresAndBatches) {
  const char *op = "scaled_dot_product_attention";
  // Scores 1 * 2 / sqrt(4) = 1 and 0: weights e / (1 + e) and 1 / (1 + e).
  const double w = std::exp(1.0) / (1 + std::exp(1.0));
  const In q{"f32", {1, 4}, {1, 0, 0, 0}}, k{"f32", {2, 4}, {2, 0, 0, 0, 0, 9, 9, 9}}, v{"f32", {2, 1}, {1, 0}};
  check(op, {q, k, v}, "", {"f32", {1, 1}, {w}}, 1e-7);
  check(op, {q, k, v}, R"("scale": 0.0)", {"f32", {1, 1}, {0.5}});
  // Keys of one head for two heads of queries; more keys than queries, causal from the first of each.
  check(op, {{"f32", {2, 1, 1}, {0, 0}}, {"f32", {1, 3, 1}, {1, 2, 3}}, {"f32", {2, 3, 1}, {1, 2, 6, 10, 20, 60}}}, "",
        {"f32", {2, 1, 1}, {3, 30}});
  check(op, {{"f32", {1, 2, 1}, {0, 0}}, {"f32", {1, 3, 1}, {1, 2, 3}}, {"f32", {1, 3, 1}, {1, 3, 60}}},
        R"("causal": true)", {"f32", {1, 2, 1}, {1, 2}});
}

TEST(Loss, CrossEntropy) {
  const In x{"f32", {3, 2}, {0, 0, 1000, 0, kNan, 0}};
  check("cross_entropy", {x, {"i64", {3}, {1, 1, -100}}}, "", {"f32", {3}, {std::log(2.0), 1000, 0}}, 1e-7);
  check("cross_entropy", {x, {"i64", {3}, {1, 0, 0}}}, R"("ignore_index": 1)", {"f32", {3}, {0, 0, kNan}});
  check("cross_entropy", {{"bf16", {0, 5}, {}}, {"i64", {0}, {}}}, "", {"f32", {0}, {}});
}

namespace {

/// quantize with its two or three results.
std::vector<Values> quantized(const In &x, const std::string &attrs, size_t results = 2) {
  std::vector<Values> values;
  for (const HostTensor &t : evalAll("quantize", {tensor(x)}, attrs, "", results))
    values.push_back(valuesOf(t));
  return values;
}

} // namespace

TEST(Quant, Granularities) {
  const In x{"f32", {2, 3}, {127, -64, 0.4, -254, 254, 3}};
  auto r = quantized(x, R"("dtype": "i8", "granularity": "token")");
  EXPECT_EQ(r[1], (Values{1, 2}));
  EXPECT_EQ(r[0], (Values{127, -64, 0, -127, 127, 2})); // 1.5 to even
  r = quantized(x, R"("dtype": "i8")");
  EXPECT_EQ(r[1], (Values{2}));
  r = quantized(x, R"("dtype": "i8", "granularity": "axis", "axis": 1)");
  EXPECT_EQ(r[1], (Values{2, 2, f32(3 / 127.0)}));
  EXPECT_EQ(r[0], (Values{64, -32, 17, -127, 127, 127})); // 63.5 to even
  r = quantized(x, R"("dtype": "f8e4m3", "granularity": "block", "block": [2, 2])");
  EXPECT_EQ(r[1], (Values{f32(254 / 448.0), f32(3 / 448.0)}));
  HostTensor scale = evalAll("quantize", {tensor({"f32", {3, 3, 5}, Values(45, 1)})},
                             R"("dtype": "f8e5m2", "granularity": "block", "block": [2, 3])", "", 2)[1];
  EXPECT_EQ(scale.type.shape, (Shape{3, 2, 2}));
  r = quantized({"f32", {5}, {1, 2, 448, 896, 0}}, R"("dtype": "f8e4m3", "granularity": "block", "block": [2])");
  EXPECT_EQ(r[1], (Values{f32(2 / 448.0), 2, 1}));
  EXPECT_EQ(r[0], (Values{224, 448, 224, 448, 0}));
  r = quantized({"f32", {}, {896}}, R"("dtype": "f8e4m3")");
  EXPECT_EQ(r[0], (Values{448}));
  r = quantized({"f32", {0, 2}, {}}, R"("dtype": "i8", "granularity": "axis", "axis": 1)");
  EXPECT_EQ(r[1], (Values{1, 1}));
}

TEST(Quant, PowerOfTwoScalesNeverClip) {
  const float past = std::nextafterf(448, 1000);
  auto r = quantized({"f32", {4, 2}, {448, 1, past, 1, 1e-45, 0, 0, 0}},
                     R"("dtype": "f8e4m3", "granularity": "block", "block": [1, 32], "scale_dtype": "f8e8m0")");
  EXPECT_EQ(r[1], (Values{1, 2, std::ldexp(1.0, -127), 1}));
  EXPECT_EQ(r[0][0], 448);
  EXPECT_EQ(r[0][2], 224);
  for (double v : {1.0, 3.7, 447.9, 449.0, 57344.0, 1e30, 1e-30}) {
    for (auto [dtype, largest] : {std::pair{"f8e4m3", 448.0}, std::pair{"f8e5m2", 57344.0}, std::pair{"i8", 127.0}}) {
      r = quantized({"f32", {1}, {v}}, std::string("\"dtype\": \"") + dtype + "\", \"scale_dtype\": \"f8e8m0\"");
      EXPECT_GE(r[1][0] * largest, f32(v)) << dtype;
      EXPECT_LT(r[1][0] * largest, 2 * f32(v)) << dtype;
      EXPECT_EQ(std::log2(r[1][0]), std::rint(std::log2(r[1][0]))) << dtype;
    }
  }
}

TEST(Quant, Asymmetric) {
  auto r = quantized({"f32", {2, 3}, {-255, 255, 0, 255, 51, 0}},
                     R"("dtype": "i8", "granularity": "token", "scheme": "asymmetric")", 3);
  EXPECT_EQ(r[1], (Values{2, 1}));
  EXPECT_EQ(r[2], (Values{0, -128})); // -128 + 127.5, to even
  EXPECT_EQ(r[0], (Values{-128, 127, 0, 127, -77, -128}));
  r = quantized({"f32", {2}, {0, 0}}, R"("dtype": "i8", "scheme": "asymmetric")", 3);
  EXPECT_EQ(r[1], (Values{1}));
  check("dequantize", {{"i8", {2}, {-128, 127}}, {"f32", {}, {2}}, {"i32", {}, {-28}}}, "", {"f32", {2}, {-200, 310}});
  // Only negative values: 0 is in the range all the same, at the top.
  r = quantized({"f32", {2}, {-255, -51}}, R"("dtype": "i8", "scheme": "asymmetric")", 3);
  EXPECT_EQ(r[2], (Values{127}));
  EXPECT_EQ(r[0], (Values{-128, 76}));
}

TEST(Quant, GivenScalesAndSpecialGroups) {
  check("dequantize", {{"f8e4m3", {2, 2}, {1, 2, 4, 8}}, {"f32", {2}, {2, 0.5}}},
        R"("granularity": "token", "dtype": "bf16")", {"bf16", {2, 2}, {2, 4, 2, 4}});
  auto all = evalAll("quantize", {tensor({"f32", {3}, {10, 1000, -kInf}}), tensor({"f32", {}, {2}})},
                     R"("dtype": "f8e4m3")", "", 2);
  EXPECT_EQ(valuesOf(all[0]), (Values{5, 448, -448}));
  EXPECT_EQ(valuesOf(all[1]), (Values{2}));
  auto r = quantized({"f32", {3, 2}, {kNan, 1, kInf, 1, 0, -0.0}}, R"("dtype": "f8e4m3", "granularity": "token")");
  expectValues(r[1], {kNan, kInf, 1}, 0, "scales");
  expectValues(r[0], {kNan, kNan, kNan, 0, 0, -0.0}, 0, "codes");
  r = quantized({"f32", {3, 2}, {kNan, 1, -kInf, 1, 0, 0}},
                R"("dtype": "i8", "granularity": "token", "scale_dtype": "f8e8m0")");
  expectValues(r[1], {kNan, kNan, 1}, 0, "scales");
  expectValues(r[0], {0, 0, 0, 0, 0, 0}, 0, "codes");
  // amax / 448 is 0 in f32: the zero of the group must not become 0 / 0.
  r = quantized({"f32", {2}, {1e-44, 0}}, R"("dtype": "f8e4m3")");
  EXPECT_GT(r[1][0], 0);
  EXPECT_EQ(r[0][1], 0);
}

TEST(Quant, FakeQuantize) {
  const In x{"f32", {2, 3}, {127, -64, 0.4, -254, 254, 3}};
  check("fake_quantize", {x}, R"("dtype": "i8", "granularity": "token")", {"f32", {2, 3}, {127, -64, 0, -254, 254, 4}});
  check("fake_quantize", {{"bf16", {2}, {255, -51}}}, R"("dtype": "i8", "scheme": "asymmetric")",
        {"bf16", {2}, {255, -51}}, 0.01);
  check("fake_quantize", {{"f32", {2}, {1000, 3}}}, R"("dtype": "f8e4m3")", {"f32", {2}, {448, 3}}, 0, "x0, 1.0");
}

TEST(Quant, ScaledMatmul) {
  const In a{"f8e4m3", {2, 2}, {1, 2, 3, 4}}, b{"f8e4m3", {3, 2}, {1, 1, 2, 0, 0, 2}};
  const std::string t = R"("transpose_b": true, )";
  check("scaled_matmul", {a, b, {"f32", {}, {10}}, {"f32", {}, {2}}}, R"("transpose_b": true)",
        {"f32", {2, 3}, {60, 40, 80, 140, 120, 160}});
  check("scaled_matmul", {a, b, {"f32", {2}, {1, 10}}, {"f32", {3}, {1, 2, 3}}},
        t + R"("granularity_a": "token", "granularity_b": "token")", {"f32", {2, 3}, {3, 4, 12, 70, 120, 240}});
  check("scaled_matmul", {a, {"f8e4m3", {2, 2}, {1, 0, 0, 1}}, {"f32", {2}, {1, 10}}, {"f32", {2}, {1, 100}}},
        R"("granularity_a": "axis", "axis_a": 0, "granularity_b": "axis", "axis_b": 1)",
        {"f32", {2, 2}, {1, 200, 30, 4000}});
  check("scaled_matmul", {a, b, {"f32", {2, 2}, {1, 10, 100, 1000}}, {"f8e8m0", {2, 1}, {1, 2}}},
        t + R"("granularity_a": "block", "block_a": [1, 1], "granularity_b": "block", "block_b": [2, 2])",
        {"f32", {2, 3}, {21, 2, 80, 4300, 600, 16000}});
  check("scaled_matmul",
        {{"i8", {1, 2}, {127, -127}}, {"i8", {1, 2}, {127, 126}}, {"f32", {}, {0.5}}, {"f32", {}, {2}}},
        t + R"("out_dtype": "bf16")", {"bf16", {1, 1}, {127}});
  check("scaled_matmul", {{"f8e4m3", {1, 0}, {}}, {"f8e4m3", {2, 0}, {}}, {"f32", {1}, {3}}, {"f32", {2}, {1, 2}}},
        t + R"("granularity_a": "token", "granularity_b": "token")", {"f32", {1, 2}, {0, 0}});
  check("scaled_matmul",
        {{"f8e4m3", {2, 1, 1}, {2, 3}}, {"f8e4m3", {1, 2}, {5, 7}}, {"f32", {2, 1}, {1, 10}}, {"f32", {}, {1}}},
        R"("granularity_a": "token")", {"f32", {2, 1, 2}, {10, 14, 150, 210}});
}

TEST(Numerics, RoundingBetweenNodes) {
  // 256 + 1 is 256 in bf16, so that rounding every node loses both ones.
  const std::vector<HostTensor> x = {tensor({"bf16", {1}, {256}})};
  const std::string add = node("add", "x0, 1.0", "a"), bf16 = R"("dtype": "bf16")", wide = R"("dtype": "f32")";
  const std::string nodes = add + ", " + node("add", "a, 1.0", "b") + ", " + node("cast", "a", "c", bf16) + ", " +
                            node("cast", "b", "d", wide) + ", " + node("cast", "c", "e", wide);
  auto value = [&](bool strict, Intermediates i, const char *output) {
    auto r = runGraph(x, nodes, output, strict, i);
    EXPECT_TRUE(r.ok());
    return r.ok() ? valuesOf((*r)[0])[0] : kNan;
  };
  EXPECT_EQ(value(false, Intermediates::Rounded, "b"), 256);
  EXPECT_EQ(value(false, Intermediates::KeepF32, "b"), 258);
  EXPECT_EQ(value(false, Intermediates::KeepF32, "d"), 258);
  EXPECT_EQ(value(false, Intermediates::KeepF32, "a"), 256); // an output rounds
  EXPECT_EQ(value(false, Intermediates::KeepF32, "e"), 256); // an explicit cast rounds
  EXPECT_EQ(value(true, Intermediates::KeepF32, "b"), 256);  // strict always rounds
  EXPECT_EQ(value(true, Intermediates::KeepF32, "d"), 256);
  // Quantised ops read storage: 257 kept in f32 would make another scale.
  const std::string quantize = node("quantize", "a", "q, s", R"("dtype": "f8e4m3")");
  auto q = runGraph(x, add + ", " + quantize, "s", false, Intermediates::KeepF32);
  ASSERT_TRUE(q.ok());
  EXPECT_EQ(valuesOf((*q)[0])[0], f32(256 / 448.0));
  // f16 overflows when it is stored, not before.
  const std::vector<HostTensor> h = {tensor({"f16", {1}, {60000}})};
  const std::string twice = node("add", "x0, x0", "a") + ", " + node("mul", "a, 0.5", "b");
  EXPECT_EQ(valuesOf((*runGraph(h, twice, "b"))[0])[0], kInf);
  EXPECT_EQ(valuesOf((*runGraph(h, twice, "b", false, Intermediates::KeepF32))[0])[0], 60000);
}

TEST(Numerics, NudgedResultsShowWhatCancels) {
  const std::vector<HostTensor> x = {tensor({"f32", {2}, {100, 100}})};
  const std::string nodes = node("mul", "x0, 2.0", "a") + ", " + node("reshape", "a", "r", R"("shape": [2])") + ", " +
                            node("sub", "r, 200.0", "b");
  auto value = [&](Intermediates i) { return valuesOf((*runGraph(x, nodes, "b", false, i))[0]); };
  EXPECT_EQ(value(Intermediates::Rounded)[0], 0);
  const auto nudged = value(Intermediates::Nudged);
  EXPECT_NEAR(nudged[0], -200 * 0x1p-22, 0x1p-18);
  EXPECT_NEAR(nudged[1], 200 * 0x1p-22, 0x1p-18);
}

TEST(Numerics, NudgedSumsKnowWhatCancelled) {
  const std::vector<HostTensor> x = {tensor({"f32", {4}, {100, -100, 50, -50}})};
  for (const char *op : {"sum", "mean"}) {
    auto value = [&](Intermediates i) { return valuesOf((*runGraph(x, node(op, "x0", "s"), "s", false, i))[0])[0]; };
    EXPECT_EQ(value(Intermediates::Rounded), 0);
    EXPECT_NEAR(std::fabs(value(Intermediates::Nudged)), (std::string(op) == "sum" ? 300 : 75) * 0x1p-22, 1e-9);
  }
  // Of many terms by no more than the order of additions brings.
  std::vector<double> many(1 << 16, 1.0);
  for (size_t i = 0; i < many.size(); i += 2)
    many[i] = -1;
  const std::vector<HostTensor> y = {tensor({"f32", {1 << 16}, many})};
  auto r = runGraph(y, node("sum", "x0", "s"), "s", false, Intermediates::Nudged);
  ASSERT_TRUE(r.ok());
  EXPECT_NEAR(std::fabs(valuesOf((*r)[0])[0]), 0x1p16 * 0x1p-17 / 0x1p8, 1e-9);
  // What is not finite stays as it is.
  const std::vector<HostTensor> z = {tensor({"f32", {2}, {kInf, 1}})};
  EXPECT_EQ(valuesOf((*runGraph(z, node("sum", "x0", "s"), "s", false, Intermediates::Nudged))[0])[0], kInf);
}

TEST(Numerics, NoContraction) {
  // x * y - x * y is 0, which an fma of the two nodes would not give.
  const std::vector<HostTensor> x = {tensor({"f32", {1}, {1.1}}), tensor({"f32", {1}, {1.3}})};
  auto r = runGraph(x, node("mul", "x0, x1", "a") + ", " + node("mul", "x0, x1", "b") + ", " + node("sub", "a, b", "c"),
                    "c");
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(valuesOf((*r)[0])[0], 0);
}

TEST(Running, OutputsAndDeadNodes) {
  const std::vector<HostTensor> x = {tensor({"f32", {2}, {1, 2}}), longs({1}, {9})};
  // A node that no output needs is not run: its index would be out of range.
  auto r = runGraph(x,
                    node("neg", "x0", "n") + ", " + node("index_select", "n, x1", "dead", R"("dim": 0)") + ", " +
                        node("add", "n, n", "s"),
                    "s, x1, n");
  ASSERT_TRUE(r.ok()) << r.error().str();
  EXPECT_EQ(valuesOf((*r)[0]), (Values{-2, -4}));
  EXPECT_EQ(longsOf((*r)[1]), (std::vector<int64_t>{9}));
  EXPECT_EQ(valuesOf((*r)[2]), (Values{-1, -2}));
}

TEST(Running, Refusals) {
  const std::vector<HostTensor> x = {tensor({"f32", {}, {1}})};
  auto unsupported = [&](const std::string &more, const std::string &pointer) {
    auto r = runGraph(x, node("neg", "x0", "y"), "y", false, Intermediates::Rounded, more);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, Code::Unsupported) << r.error().str();
    EXPECT_EQ(r.error().pointer, pointer);
  };
  unsupported(R"(, "precision": {"mode": "bf16"})", "/precision/mode");
  unsupported(R"(, "gradient": {"loss": "y", "wrt": ["x0"]})", "/gradient");
  auto r = runGraph(x, R"({"op": "neg", "inputs": ["x0"], "outputs": ["y"], "precision": "f8e4m3"})", "y");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().pointer, "/nodes/0/precision");
  // A tensor of another type than the graph's.
  GraphSpec spec =
      *parseGraph(R"({"ridgeline": 1, "name": "t", "inputs": {"x": {"dtype": "f32", "shape": [2]}}, "nodes": [],)"
                  R"("outputs": ["x"]})");
  Graph graph = *resolve(spec);
  auto wrong = interpret(graph, x, {});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().pointer, "/x");
  EXPECT_EQ(interpret(graph, {}, {}).error().code, Code::Usage);
}

TEST(Running, OutOfMemoryIsAnError) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  GTEST_SKIP() << "the sanitizer aborts on such an allocation";
#endif
#endif
  auto r = runGraph({}, node("full", "", "y", R"("shape": [1152921504606846975], "value": 0, "dtype": "i8")"), "y");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, Code::Device) << r.error().str();
}

TEST(Running, PinsAndProgress) {
  const std::vector<HostTensor> x = {tensor({"f32", {1}, {257}})};
  auto r = runGraph(x, R"({"op": "add", "inputs": ["x0", 1.0], "outputs": ["y"], "precision": "bf16"})", "y");
  ASSERT_TRUE(r.ok()) << r.error().str();
  EXPECT_EQ(valuesOf((*r)[0])[0], 256); // the operand becomes 256, 257 rounds to 256
  Graph graph = *resolve(
      *parseGraph(R"({"ridgeline": 1, "name": "t", "inputs": {"x": {"dtype": "f32", "shape": []}}, "nodes": [)" +
                  node("neg", "x", "a") + ", " + node("neg", "a", "b") + R"(], "outputs": ["b"]})"));
  std::vector<std::pair<size_t, size_t>> told;
  ASSERT_TRUE(interpret(graph, {tensor({"f32", {}, {1}})}, {}, [&](size_t done, size_t all) {
                told.emplace_back(done, all);
              }).ok());
  EXPECT_EQ(told, (std::vector<std::pair<size_t, size_t>>{{1, 2}, {2, 2}}));
}

/// Last of all: every op of the table has been run above.
TEST(ZEveryOp, IsCovered) {
  if (testing::GTEST_FLAG(filter) != "*")
    GTEST_SKIP() << "only of a full run";
  for (const OpInfo &op : allOps())
    EXPECT_TRUE(covered().count(op.name)) << op.name;
}
