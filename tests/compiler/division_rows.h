// Rows of numbers and their divisors, programs that divide them, and mistakes in their text: what
// tests of division as the printer of PTX does it have in common.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/program/program.h"
#include "tests/compiler/hard_dividends.h"
#include "tests/compiler/ptx_check.h"

namespace outboard::test {

inline float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

// Divisors, each with kRow dividends.
inline constexpr int64_t kRow = 8, kThreads = 64;
struct Rows {
  std::vector<float> divisors, dividends;

  void Add(float divisor, const std::vector<float>& numbers) {
    for (size_t begin = 0; begin < numbers.size(); begin += kRow) {
      divisors.push_back(divisor);
      for (size_t i = begin; i < begin + kRow; ++i)
        dividends.push_back(i < numbers.size() ? numbers[i] : 1.0f);
    }
  }
};

// Of every kind: special numbers by each other, quotients near the middle of two floats, exactly in
// it (where they are subnormal), near the ends of the fast part, and any bits.
inline Rows AllKinds() {
  Rows rows;
  std::mt19937 random(1);
  std::vector<float> special;
  for (const float x : {0x0p0f,
                        1.0f,
                        3.0f,
                        1 - 0x1p-24f,
                        0x1.fffffep0f,
                        0x1.000002p0f,
                        10.0f,
                        0x1p-149f,
                        0x1.8p-148f,
                        0x1.fffffcp-127f,
                        0x1p-126f,
                        0x1.fffffep-126f,
                        0x1p-103f,
                        0x1.8p-70f,
                        0x1p-69f,
                        0x1p-33f,
                        0x1.fffffep-33f,
                        0x1p-32f,
                        0x1p24f,
                        0x1p31f,
                        0x1.fffffep125f,
                        0x1p126f,
                        0x1.000002p126f,
                        0x1.8p126f,
                        0x1.fffffep126f,
                        0x1p127f,
                        0x1.fffffep127f,
                        INFINITY,
                        NAN}) {
    special.push_back(x);
    special.push_back(-x);
  }
  for (const float divisor : special) rows.Add(divisor, special);
  const auto digits = [&] { return kDigitsLeast + static_cast<int64_t>(random() % kDigitsLeast); };
  const auto sign = [&] { return random() % 2 == 0 ? 1.0f : -1.0f; };
  // In the middle, nearly.
  for (int i = 0; i < 256; ++i) {
    const int64_t b = i < 8 ? kDigitsEnd - 1 - i : digits();
    std::vector<float> numbers = {1.0f};
    HardDividends(b, 3, [&](int64_t a) {
      numbers.push_back(std::ldexp(sign() * static_cast<float>(a), static_cast<int>(random() % 9)));
    });
    rows.Add(std::ldexp(sign() * static_cast<float>(b), static_cast<int>(random() % 50) - 40),
             numbers);
  }
  // Subnormal quotients: m + 1/2 steps of 2^-149, exactly, and the dividends next to that.
  for (int i = 0; i < 128; ++i) {
    const auto b = static_cast<float>(3 + 2 * (random() % 2000));
    std::vector<float> numbers;
    for (int k = 0; k < 5; ++k) {
      const auto half = static_cast<float>(1 + 2 * (random() % 2000));
      const float a = std::ldexp(half * b, -110);
      for (const float number : {a, std::nextafter(a, 0.0f), std::nextafter(a, INFINITY), -a})
        numbers.push_back(number);
    }
    rows.Add(std::ldexp(sign() * b, 40), numbers);
  }
  // Near the ends of the fast part: exponents of a divisor and of its quotients.
  struct Ends {
    int divisor, divisors, quotient, quotients;  // the first one and how many
  };
  for (const Ends& ends :
       {Ends{-34, 4, -71, 5}, Ends{-20, 40, -71, 5}, Ends{-20, 40, -128, 8}, Ends{-75, 42, -70, 4},
        Ends{124, 4, -71, 5}, Ends{124, 4, -3, 3}, Ends{-126, 100, 126, 3}})
    for (int i = 0; i < 96; ++i) {
      const auto exponent = [&](int first, int count) {
        return first + static_cast<int>(random() % static_cast<unsigned>(count));
      };
      const float b = std::ldexp(sign() * static_cast<float>(digits()),
                                 exponent(ends.divisor, ends.divisors) - 23);
      std::vector<float> numbers;
      for (int k = 0; k < kRow; ++k)
        numbers.push_back(b * std::ldexp(static_cast<float>(digits()),
                                         exponent(ends.quotient, ends.quotients) - 23));
      rows.Add(b, numbers);
    }
  // Any bits, and ordinary numbers.
  for (int i = 0; i < 512; ++i) {
    const auto any = [&] {
      return i % 2 == 0 ? FromBits(static_cast<uint32_t>(random()))
                        : std::ldexp(sign() * static_cast<float>(digits()),
                                     static_cast<int>(random() % 20) - 33);
    };
    std::vector<float> numbers;
    for (int k = 0; k < kRow; ++k) numbers.push_back(k == 5 ? 0.0f : any());
    rows.Add(any(), numbers);
  }
  while (rows.divisors.size() % kThreads != 0) rows.Add(1, {1});
  return rows;
}

inline std::string BytesOf(const std::vector<float>& numbers, DType dtype) {
  const auto width = static_cast<size_t>(ByteWidth(dtype));
  std::string bytes(numbers.size() * width, '\0');
  for (size_t i = 0; i < numbers.size(); ++i)
    StoreFloat(dtype, static_cast<double>(numbers[i]), bytes.data() + i * width);
  return bytes;
}

// Each thread divides a row by its divisor, `lanes` numbers at a time; or `together`, when it has
// loaded all of them. Not together, what it divides next lies elsewhere: loads that lie next to
// each other would become one.
inline program::Program DivideRows(DType dtype, int64_t rows, int lanes, bool together = false) {
  using program::ValueId;
  program::ProgramBuilder b;
  const ValueId out = b.Buffer(dtype, 0, rows * kRow), in = b.Buffer(dtype, 1, rows * kRow),
                divisors = b.Buffer(dtype, 2, rows);
  const ValueId row = b.Plus(b.Times(b.Special(program::Grid::kBlock, rows / kThreads), kThreads),
                             b.Special(program::Grid::kThread, kThreads));
  const ValueId divisor = b.Splat(b.Load(divisors, row), lanes);
  const auto place = [&](int64_t k) {
    return together ? b.Plus(b.Times(row, kRow), b.Int(k))
                    : b.Plus(b.Times(row, lanes), b.Int(k * rows));
  };
  std::vector<ValueId> numbers;
  for (int64_t k = 0; together && k < kRow; k += lanes)
    numbers.push_back(b.Add(
        {.code = program::Code::kLoad, .dtype = dtype, .lanes = lanes, .src = {in, place(k)}}));
  for (int64_t k = 0; k < kRow; k += lanes) {
    const ValueId x = together ? numbers[static_cast<size_t>(k / lanes)]
                               : b.Add({.code = program::Code::kLoad,
                                        .dtype = dtype,
                                        .lanes = lanes,
                                        .src = {in, place(k)}});
    b.Store(out, place(k),
            b.Add({.code = program::Code::kAlu,
                   .op = Op::kFDiv,
                   .dtype = dtype,
                   .lanes = lanes,
                   .src = {x, divisor}}));
  }
  return b.Take(3);
}

inline size_t CountOf(const std::string& text, const char* part) {
  return std::vector<std::string>(absl::StrSplit(text, part)).size() - 1;
}

// As DivideRows has them.
inline Buffers BuffersOf(const Rows& rows, DType dtype, int lanes = 1, bool together = false) {
  std::vector<float> dividends = rows.dividends;
  const size_t count = rows.divisors.size(), width = static_cast<size_t>(lanes);
  for (size_t i = 0; !together && i < dividends.size(); ++i) {
    const size_t row = i / kRow, k = i % kRow;
    dividends[k / width * width * count + row * width + k % width] = rows.dividends[i];
  }
  return {BytesOf(std::vector<float>(dividends.size()), dtype), BytesOf(dividends, dtype),
          BytesOf(rows.divisors, dtype)};
}

// How many numbers differ; all NaN are one.
inline int64_t Differences(const std::string& a, const std::string& b, DType dtype) {
  const auto width = static_cast<size_t>(ByteWidth(dtype));
  int64_t count = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i + width <= std::min(a.size(), b.size()); i += width) {
    const double x = LoadFloat(dtype, a.data() + i), y = LoadFloat(dtype, b.data() + i);
    count +=
        std::memcmp(a.data() + i, b.data() + i, width) != 0 && !(std::isnan(x) && std::isnan(y));
  }
  return count;
}

// Which lines a mistake is made in, and what is there in place of a part of them. Of the lines that
// have `line`, the `first` one, and if `every` is not 0 each `every` ones behind it.
struct Mistake {
  const char* name;
  const char* line;
  int first, every;
  const char *part, *instead;
};

inline std::string WithMistake(const std::string& text, const Mistake& mistake) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  int n = 0;
  for (std::string& line : lines) {
    if (!absl::StrContains(line, mistake.line)) continue;
    const int behind = n++ - mistake.first;
    if (behind < 0 || (behind > 0 && (mistake.every == 0 || behind % mistake.every != 0))) continue;
    const size_t at = line.find(mistake.part);
    if (at != std::string::npos) line.replace(at, std::strlen(mistake.part), mistake.instead);
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace outboard::test
