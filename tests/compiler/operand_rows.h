// Programs that store values to rows, one of each, and say which rows differ from those of another
// run: for tests of operations on constants and on numbers at the ends of each type's range.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/program/program.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {

inline constexpr int64_t kRowThreads = 32;
inline constexpr int kMostLanes = 16;

inline std::vector<DType> AllTypes() {
  std::vector<DType> types;
  for (int code = 1; code < kDTypeCount; ++code) types.push_back(static_cast<DType>(code));
  return types;
}

// As CONST has them: integers as they are, floats as the bits of a double.
inline std::vector<int64_t> EdgesOf(DType dtype) {
  std::vector<int64_t> edges;
  const auto add = [&](int64_t number) {
    if (std::ranges::find(edges, number) == edges.end()) edges.push_back(number);
  };
  if (IsFloat(dtype)) {
    for (const double number :
         {0.0,          -0.0,    1.0,      -1.0,      0.5,         -1.5,    2.5,      1.0 / 3,
          127.5,        -128.0,  255.5,    32767.5,   -32769.0,    65520.0, 0x1p31,   -0x1p31,
          0x1p32,       0x1p63,  -0x1p63,  0x1p64,    1e300,       0x1p-9,  -0x1p-24, 0x1p-149,
          -0x1.8p-1074, -1e-300, HUGE_VAL, -HUGE_VAL, std::nan("")})
      add(std::bit_cast<int64_t>(RoundTo(dtype, number)));
    return edges;
  }
  const int64_t width = 8 * ByteWidth(dtype), most = IntMax(dtype), least = IntMin(dtype);
  for (const int64_t number : {int64_t{0},
                               int64_t{1},
                               int64_t{-1},
                               int64_t{2},
                               int64_t{-2},
                               int64_t{3},
                               int64_t{-3},
                               int64_t{7},
                               int64_t{-12},
                               width - 1,
                               width,
                               -width,
                               int64_t{31},
                               int64_t{33},
                               int64_t{64},
                               int64_t{127},
                               int64_t{128},
                               least,
                               least + 1,
                               most,
                               most - 1,
                               most / 3,
                               int64_t{1} << (width / 2),
                               -(int64_t{1} << (width / 2)),
                               int64_t{1} << 31,
                               int64_t{1} << 32,
                               int64_t{0x76543210fedcba98}})
    add(WrapTo(dtype, number));
  OB_CHECK(edges.size() <= kRowThreads);
  return edges;
}

inline std::string NumberText(DType dtype, int64_t number) {
  if (IsFloat(dtype)) return absl::StrCat(std::bit_cast<double>(number));
  return dtype == DType::kU64 ? absl::StrCat(static_cast<uint64_t>(number)) : absl::StrCat(number);
}

// A program that stores each value that it is given to a row of its own. Of each type there is a
// buffer that it stores to, and one with the type's edges, of which each thread reads one.
class Rows {
 public:
  // Which rows a program has: those whose number is `part` modulo `parts`.
  struct Part {
    int64_t part = 0, parts = 1;
  };
  // `axis`: of the threads, or blocks, that it has kRowThreads of. `folds`: a ProgramBuilder makes
  // the program.
  explicit Rows(Part part, program::Grid axis = program::Grid::kThread, bool folds = false)
      : part_(part), folds_(folds) {
    for (const DType dtype : AllTypes()) {
      const auto slot = static_cast<int>(dtype) - 1;
      outs_.push_back(
          Add({.code = program::Code::kBuffer, .dtype = dtype, .lanes = 0, .imm = {slot, 0}}));
      ins_.push_back(Add({.code = program::Code::kBuffer,
                          .dtype = dtype,
                          .lanes = 0,
                          .imm = {slot + kTypes, kRowThreads * kMostLanes}}));
      rows_.emplace_back();
    }
    thread_ = Add({.code = program::Code::kSpecial,
                   .dtype = DType::kI64,
                   .imm = {static_cast<int64_t>(axis), kRowThreads}});
  }

  program::ValueId Add(program::Instruction i) {
    if (folds_) return builder_.Add(std::move(i));
    program_.code.push_back(std::move(i));
    return static_cast<program::ValueId>(program_.code.size()) - 1;
  }
  const program::Instruction& at(program::ValueId n) const {
    return folds_ ? builder_.at(n) : program_.code[static_cast<size_t>(n)];
  }
  program::ValueId thread() const { return thread_; }

  program::ValueId Const(DType dtype, int64_t number) {
    return Add({.code = program::Code::kConst, .dtype = dtype, .imm = {number}});
  }
  program::ValueId Int(int64_t number) { return Const(DType::kI64, number); }
  program::ValueId Loaded(DType dtype) {
    return Add({.code = program::Code::kLoad, .dtype = dtype, .src = {In(dtype), thread_}});
  }
  program::ValueId In(DType dtype) const { return ins_[static_cast<size_t>(dtype) - 1]; }
  program::ValueId Out(DType dtype) const { return outs_[static_cast<size_t>(dtype) - 1]; }
  program::ValueId Alu(Op op, DType dtype, std::initializer_list<program::ValueId> src) {
    return Add({.code = program::Code::kAlu, .op = op, .dtype = dtype, .src = src});
  }
  program::ValueId Cast(program::Code code, program::ValueId x, DType to, int lanes = 1) {
    return Add({.code = code, .dtype = to, .lanes = lanes, .src = {x}});
  }
  program::ValueId Lanes(DType dtype, const std::vector<program::ValueId>& values) {
    program::Instruction i{
        .code = program::Code::kLanes, .dtype = dtype, .lanes = static_cast<int>(values.size())};
    i.src.assign(values.begin(), values.end());
    return Add(std::move(i));
  }

  // The index of the thread's elements of the next row of that type; `what` names the row.
  program::ValueId Row(DType dtype, int lanes, std::string what) {
    RowsOfType& rows = rows_[static_cast<size_t>(dtype) - 1];
    rows.elements = (rows.elements + kMostLanes - 1) / kMostLanes * kMostLanes;
    const program::ValueId own =
        lanes == 1 ? thread_ : Alu(Op::kMul, DType::kI64, {thread_, Int(lanes)});
    const program::ValueId index =
        rows.elements == 0 ? own : Alu(Op::kAdd, DType::kI64, {own, Int(rows.elements)});
    rows.begins.push_back(rows.elements);
    rows.names.push_back(std::move(what));
    rows.elements += kRowThreads * lanes;
    return index;
  }
  void Store(DType dtype, program::ValueId index, program::ValueId value) {
    Add({.code = program::Code::kStore,
         .lanes = at(value).lanes,
         .src = {Out(dtype), index, value}});
  }
  // Counts a row. Whether it is one of this part.
  bool IsNext() { return next_++ % part_.parts == part_.part; }
  void Keep(program::ValueId value, std::string what) {
    if (!IsNext()) return;
    const DType dtype = at(value).dtype;
    Store(dtype, Row(dtype, at(value).lanes, std::move(what)), value);
  }

  program::Program Take() {
    program::Program program = folds_ ? builder_.Take(2 * kTypes) : std::move(program_);
    program.buffer_count = 2 * kTypes;
    DropUnused(program);
    for (program::Instruction& i : program.code)
      if (i.code == program::Code::kBuffer && i.imm[0] < kTypes)
        i.imm[1] = rows_[static_cast<size_t>(i.imm[0])].elements;
    return program;
  }
  Buffers Start() const {
    Buffers buffers(2 * kTypes);
    for (const DType dtype : AllTypes()) {
      const auto slot = static_cast<size_t>(dtype) - 1;
      const auto width = static_cast<size_t>(ByteWidth(dtype));
      buffers[slot].assign(static_cast<size_t>(rows_[slot].elements) * width, '\0');
      std::string& in = buffers[slot + kTypes];
      in.resize(kRowThreads * kMostLanes * width);
      const std::vector<int64_t> edges = EdgesOf(dtype);
      for (size_t k = 0; k < kRowThreads * kMostLanes; ++k) {
        const int64_t number = edges[k % edges.size()];
        if (IsFloat(dtype)) {
          StoreFloat(dtype, std::bit_cast<double>(number), in.data() + k * width);
        } else {
          StoreInt(dtype, number, in.data() + k * width);
        }
      }
    }
    return buffers;
  }
  // The first elements that differ, at most ten; empty where none does. A NaN has any bits.
  std::string Difference(const Buffers& got, const Buffers& want) const {
    std::string text;
    int told = 0;
    for (const DType dtype : AllTypes()) {
      const auto slot = static_cast<size_t>(dtype) - 1;
      const auto width = static_cast<size_t>(ByteWidth(dtype));
      const RowsOfType& rows = rows_[slot];
      for (size_t k = 0; k < want[slot].size() / width && told < 10; ++k) {
        const char *x = got[slot].data() + k * width, *y = want[slot].data() + k * width;
        if (std::equal(x, x + width, y)) continue;
        const bool is_float = IsFloat(dtype);
        if (is_float && std::isnan(LoadFloat(dtype, x)) && std::isnan(LoadFloat(dtype, y)))
          continue;
        const auto number = [&](const char* bytes) {
          return NumberText(dtype, is_float ? std::bit_cast<int64_t>(LoadFloat(dtype, bytes))
                                            : LoadInt(dtype, bytes));
        };
        const auto row =
            static_cast<size_t>(std::ranges::upper_bound(rows.begins, static_cast<int64_t>(k)) -
                                rows.begins.begin() - 1);
        absl::StrAppend(&text, rows.names[row], ", element ",
                        static_cast<int64_t>(k) - rows.begins[row], ": ", number(x), ", not ",
                        number(y), "\n");
        ++told;
      }
    }
    return text;
  }
  int64_t count() const {
    int64_t all = 0;
    for (const RowsOfType& rows : rows_) all += static_cast<int64_t>(rows.begins.size());
    return all;
  }

 private:
  static constexpr int kTypes = kDTypeCount - 1;
  struct RowsOfType {
    int64_t elements = 0;
    std::vector<int64_t> begins;
    std::vector<std::string> names;
  };
  // What rows of other parts are computed from.
  static void DropUnused(program::Program& program) {
    const size_t count = program.code.size();
    std::vector<bool> used(count);
    for (size_t n = count; n-- > 0;) {
      const program::Instruction& i = program.code[n];
      used[n] = used[n] || (!program::IsPure(i.code) && i.code != program::Code::kLoad);
      if (used[n])
        for (const program::ValueId s : i.src) used[static_cast<size_t>(s)] = true;
    }
    std::vector<program::ValueId> made(count, -1);
    std::vector<program::Instruction> code;
    for (size_t n = 0; n < count; ++n) {
      if (!used[n]) continue;
      program::Instruction i = std::move(program.code[n]);
      for (program::ValueId& s : i.src) s = made[static_cast<size_t>(s)];
      made[n] = static_cast<program::ValueId>(code.size());
      code.push_back(std::move(i));
    }
    program.code = std::move(code);
  }

  Part part_;
  int64_t next_ = 0;
  bool folds_;
  program::ProgramBuilder builder_;
  program::Program program_;
  std::vector<program::ValueId> outs_, ins_;
  program::ValueId thread_ = -1;
  std::vector<RowsOfType> rows_;
};

}  // namespace outboard::test
