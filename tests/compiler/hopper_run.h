// Products by warpgroups with their inputs and results, for tests and figures.
#pragma once

#include <string>
#include <vector>

#include "tests/compiler/whole_product.h"

namespace outboard::test {

struct HopperCase {
  std::string name;
  program::HopperProduct product;
  program::HopperTile tile;
  program::ProductEpilogue epilogue;  // null: the sum
  double (*wanted)(double sum, int64_t row, int64_t column) = nullptr;
  uint32_t seeds = 2;
  bool full_digits = false;  // operands have 24 digits, sums the bound of three products
};

// Layouts, tiles, remainders, batches, persistent blocks, types, an epilogue that reads a buffer.
std::vector<HopperCase> HopperCases();

// Small numbers, exact in the operands' type and in sums of f32 unless they have full digits; C is
// full of another number.
std::vector<std::string> InputsOf(const HopperCase& test);
// Where C in `buffers` is not the product, or not within the bound of one of full digits; empty
// where it is.
std::string DifferenceOf(const HopperCase& test, const std::vector<std::string>& buffers);

}  // namespace outboard::test
