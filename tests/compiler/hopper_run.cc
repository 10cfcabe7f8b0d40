#include "tests/compiler/hopper_run.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "compiler/program/interpret_lanes.h"
#include "compiler/reference/value.h"

namespace outboard::test {
namespace {

using program::HopperProduct;
using program::HopperTile;
using program::ProgramBuilder;
using program::SumPlace;
using program::ValueId;

// Quarters from -2 to 2.
double NumberAt(int side, int64_t index) {
  auto x = static_cast<uint64_t>(index) * 2654435761u + static_cast<uint64_t>(side) * 97;
  x ^= x >> 15;
  return static_cast<double>(static_cast<int64_t>(x * 40503 >> 7 & 15) - 8) / 4;
}

// Those of 24 digits, of both signs, from 1 to 2.
double FullNumberAt(int side, int64_t index) {
  auto x = static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(side) * 97;
  x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
  const double size = 1 + static_cast<double>(x >> 40 & 0x7fffff) * 0x1p-23;
  return (x >> 63) != 0 ? size : -size;
}

double NumberOfCase(const HopperCase& test, int side, int64_t index) {
  return test.full_digits ? FullNumberAt(side, index) : NumberAt(side, index);
}

std::string Bytes(DType dtype, int64_t count, const auto& number) {
  std::string bytes(static_cast<size_t>(count * ByteWidth(dtype)), '\0');
  for (int64_t i = 0; i < count; ++i) {
    const int64_t lane = program::AsBits(number(i));
    program::StoreLanes(dtype, &lane, 1, bytes.data() + i * ByteWidth(dtype));
  }
  return bytes;
}

double NumberOf(DType dtype, const std::string& bytes, int64_t index) {
  int64_t lane = 0;
  program::LoadLanes(dtype, bytes.data() + index * ByteWidth(dtype), 1, &lane);
  return program::AsFloat(lane);
}

// sum / 2 + bias[column], not below zero.
ValueId BiasAndRelu(ProgramBuilder& b, SumPlace place, ValueId sum) {
  const ValueId bias = b.Buffer(DType::kF32, 3, 192);
  program::Instruction load{
      .code = program::Code::kLoad, .dtype = DType::kF32, .src = {bias, place.column}};
  if (place.inside >= 0) load.src.insert(load.src.end(), {place.inside, b.Const(DType::kF32, 0)});
  const ValueId half = b.Alu(Op::kMul, DType::kF32, {sum, b.Const(DType::kF32, 0.5)});
  const ValueId value = b.Alu(Op::kAdd, DType::kF32, {half, b.Add(load)});
  return b.Cast(b.Alu(Op::kMax, DType::kF32, {value, b.Const(DType::kF32, 0)}), DType::kBF16);
}

}  // namespace

std::vector<HopperCase> HopperCases() {
  std::vector<HopperCase> cases;
  const auto add = [&](std::string name, HopperProduct product, HopperTile tile) -> HopperCase& {
    product.c_dtype = DType::kF32;
    return cases.emplace_back(
        HopperCase{.name = std::move(name), .product = product, .tile = tile});
  };
  for (const bool a : {false, true})
    for (const bool b : {false, true})
      add(absl::StrCat("layout ", a, b),
          {.m = 128, .n = 128, .k = 320, .a_by_columns = a, .b_by_columns = b}, {});
  add("one step", {.m = 128, .n = 64, .k = 64}, {.columns = 64, .stages = 2});
  add("wide", {.m = 256, .n = 512, .k = 320}, {.columns = 256}).product.c_dtype = DType::kBF16;
  for (const bool by : {false, true})
    add(absl::StrCat("remainders ", by),
        {.m = 200, .n = 136, .k = 88, .a_by_columns = by, .b_by_columns = by}, {});
  add("batches of f16",
      {.dtype = DType::kF16, .m = 72, .n = 64, .k = 160, .batch = 3, .b_by_columns = true},
      {.columns = 64});
  add("persistent", {.m = 384, .n = 192, .k = 192},
      {.columns = 64, .stages = 4, .persistent_blocks = 4});
  add("persistent, batches, an uneven ring",
      {.m = 256, .n = 64, .k = 128, .batch = 2, .a_by_columns = true},
      {.columns = 64, .stages = 8, .persistent_blocks = 3});
  add("order with a rest", {.m = 640, .n = 128, .k = 64},
      {.columns = 64, .stages = 2, .persistent_blocks = 3, .order = 2});
  add("pairs, not boxes", {.m = 200, .n = 136, .k = 128, .c_in_boxes = false}, {});
  add("odd boxes", {.m = 256, .n = 192, .k = 128}, {.columns = 192, .persistent_blocks = 1})
      .product.c_dtype = DType::kBF16;
  add("results of f16", {.dtype = DType::kF16, .m = 200, .n = 200, .k = 72}, {.columns = 256})
      .product.c_dtype = DType::kF16;
  for (const bool by : {false, true})
    add(absl::StrCat("cluster ", by),
        {.m = 256, .n = 256, .k = 320, .a_by_columns = by, .b_by_columns = !by}, {.cluster = 2});
  add("cluster, remainders, persistent", {.m = 440, .n = 136, .k = 200},
      {.columns = 64, .stages = 2, .persistent_blocks = 2, .cluster = 2, .order = 2})
      .product.b_by_columns = true;
  add("cluster of four", {.m = 512, .n = 256, .k = 192}, {.columns = 256, .cluster = 4})
      .product.c_dtype = DType::kBF16;
  add("sums in two parts", {.m = 128, .n = 128, .k = 576}, {.split = 2});
  add("sums in four parts, remainders", {.m = 200, .n = 136, .k = 600},
      {.columns = 256, .stages = 2, .split = 4})
      .product.c_in_boxes = false;
  add("sums in two parts, batches", {.m = 72, .n = 128, .k = 320, .batch = 2},
      {.columns = 128, .split = 2})
      .product.c_dtype = DType::kBF16;
  // Operands of other widths: 128 of k in a stage, or 32; K-major alone.
  const auto narrow = [&](std::string name, DType dtype, HopperProduct product, HopperTile tile) {
    product.dtype = dtype;
    product.b_by_columns = true;
    HopperCase& test = add(absl::StrCat(name, ", ", std::string(Name(dtype))), product, tile);
    test.seeds = 1;
    test.full_digits = product.three_tf32;
    return &test;
  };
  narrow("ring", DType::kF8E4M3, {.m = 128, .n = 128, .k = 640}, {});
  narrow("ring, by e5m2", DType::kF8E4M3,
         {.columns_dtype = DType::kF8E5M2, .m = 128, .n = 128, .k = 640}, {});
  narrow("remainders, cluster, by e4m3", DType::kF8E5M2,
         {.columns_dtype = DType::kF8E4M3, .m = 200, .n = 136, .k = 400},
         {.stages = 2, .cluster = 2});
  narrow("ring", DType::kF32, {.m = 128, .n = 128, .k = 160}, {});
  for (const DType dtype : {DType::kF8E5M2, DType::kF32})
    narrow("remainders, persistent", dtype, {.m = 200, .n = 72, .k = 128 / ByteWidth(dtype) + 16},
           {.columns = 64, .stages = 2, .persistent_blocks = 1})
        ->product.c_dtype = DType::kBF16;
  narrow("cluster and batches", DType::kF8E4M3, {.m = 256, .n = 128, .k = 400, .batch = 2},
         {.stages = 2, .cluster = 2, .order = 2});
  narrow("sums in two parts", DType::kF8E5M2, {.m = 128, .n = 128, .k = 1040}, {.split = 2});
  narrow("256 columns", DType::kF32, {.m = 128, .n = 256, .k = 96}, {.columns = 256});
  // f32 by three products, where a stage has the low parts of B, too.
  narrow("three products, ring", DType::kF32,
         {.three_tf32 = true, .m = 128, .n = 128, .k = 160}, {});
  narrow("three products, remainders, persistent", DType::kF32,
         {.three_tf32 = true, .m = 200, .n = 72, .k = 136},
         {.columns = 64, .stages = 2, .persistent_blocks = 1});
  narrow("three products, cluster and batches", DType::kF32,
         {.three_tf32 = true, .m = 256, .n = 64, .k = 128, .batch = 2},
         {.columns = 64, .stages = 2, .cluster = 2, .order = 2});
  narrow("three products, sums in two parts", DType::kF32,
         {.three_tf32 = true, .m = 128, .n = 64, .k = 256},
         {.columns = 64, .stages = 2, .split = 2});
  // Operands across k, which the block turns.
  const auto turned = [&](std::string name, bool a, bool b, HopperProduct product,
                          HopperTile tile) {
    product.three_tf32 = true;
    HopperCase* const test = narrow(std::move(name), DType::kF32, product, tile);
    test->product.a_by_columns = a;
    test->product.b_by_columns = !b;
  };
  turned("three products, B across k, ring", false, true, {.m = 128, .n = 128, .k = 160}, {});
  turned("three products, A across k, remainders, persistent", true, false,
         {.m = 200, .n = 72, .k = 136}, {.columns = 64, .stages = 2, .persistent_blocks = 1});
  turned("three products, both across k, remainders, persistent", true, true,
         {.m = 200, .n = 72, .k = 136}, {.columns = 64, .stages = 2, .persistent_blocks = 1});
  turned("three products, both across k, cluster and batches", true, true,
         {.m = 256, .n = 64, .k = 128, .batch = 2},
         {.columns = 64, .stages = 2, .cluster = 2, .order = 2});
  turned("three products, B across k, sums in two parts", false, true,
         {.m = 128, .n = 128, .k = 256}, {.stages = 2, .split = 2});
  for (const bool a : {false, true})
    for (const bool b : {false, true}) {
      if (!a && !b) continue;
      HopperCase* const test = narrow(absl::StrCat("across k, remainders, persistent ", a, b),
                                      DType::kF32, {.m = 200, .n = 72, .k = 144},
                                      {.columns = 64, .stages = 2, .persistent_blocks = 1});
      test->product.a_by_columns = a;
      test->product.b_by_columns = !b;
    }
  HopperCase* const across = narrow("256 columns, both across k, cluster", DType::kF32,
                                    {.m = 256, .n = 256, .k = 96},
                                    {.columns = 256, .stages = 2, .cluster = 2});
  across->product.a_by_columns = true;
  across->product.b_by_columns = false;
  HopperCase& bias = add("bias and relu to bf16", {.m = 120, .n = 192, .k = 64}, {.stages = 2});
  bias.product.c_dtype = DType::kBF16;
  bias.product.buffer_count = 4;
  bias.epilogue = BiasAndRelu;
  bias.wanted = [](double sum, int64_t, int64_t column) {
    return std::max(0.0, sum / 2 + NumberAt(3, column));
  };
  return cases;
}

std::vector<std::string> InputsOf(const HopperCase& test) {
  const HopperProduct& p = test.product;
  std::vector<std::string> buffers(static_cast<size_t>(p.buffer_count));
  buffers[0] = Bytes(p.c_dtype, p.batch * p.m * p.n, [](int64_t) { return -77.0; });
  const auto of = [&](int side) {
    return [&test, side](int64_t i) { return NumberOfCase(test, side, i); };
  };
  buffers[1] = Bytes(p.dtype, p.batch * p.m * p.k, of(1));
  buffers[2] = Bytes(p.columns_dtype == DType::kVoid ? p.dtype : p.columns_dtype,
                     p.batch * p.k * p.n, of(2));
  if (p.buffer_count > 3)
    buffers[3] = Bytes(DType::kF32, p.n, [](int64_t i) { return NumberAt(3, i); });
  return buffers;
}

std::string DifferenceOf(const HopperCase& test, const std::vector<std::string>& buffers) {
  const HopperProduct& p = test.product;
  for (int64_t batch = 0; batch < p.batch; ++batch)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < p.k; ++k) {
          const int64_t a = batch * p.m * p.k + (p.a_by_columns ? k * p.m + i : i * p.k + k);
          const int64_t b = batch * p.k * p.n + (p.b_by_columns ? j * p.k + k : k * p.n + j);
          const double term = NumberOfCase(test, 1, a) * NumberOfCase(test, 2, b);
          sum += term;
          size += std::abs(term);
        }
        if (test.wanted != nullptr) sum = test.wanted(sum, i, j);
        const double got = NumberOf(p.c_dtype, buffers[0], (batch * p.m + i) * p.n + j);
        // compiler/program/hopper/two_tf32.h
        const double bound = (90 + static_cast<double>(p.k) / 32) * 0x1p-24 * size;
        if (test.full_digits ? !(std::abs(got - sum) <= bound) : RoundTo(p.c_dtype, sum) != got)
          return absl::StrCat("C[", batch, "][", i, "][", j, "] is ", got, ", not ", sum);
      }
  return "";
}

}  // namespace outboard::test
