// What decoding shares: modifiers, each of which is taken by name, and operands.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/gpu/text/parser.h"

namespace outboard::ptx {

class DecoderBase {
 public:
  DecoderBase(FunctionBuilder* builder, std::string_view mnemonic, std::vector<Operand> operands,
              int line)
      : builder_(builder),
        function_(builder->function()),
        mnemonic_(mnemonic),
        operands_(std::move(operands)),
        line_(line) {
    for (size_t begin = 0; begin <= mnemonic.size();) {
      const size_t end = std::min(mnemonic.find('.', begin), mnemonic.size());
      parts_.push_back(mnemonic.substr(begin, end - begin));
      begin = end + 1;
    }
    used_.resize(parts_.size());
    used_[0] = true;
    in_.line = line;
  }

  absl::Status Run(int guard, bool guard_negated) {
    in_.guard = guard;
    in_.guard_negated = guard_negated;
    Dispatch();
    if (error_.ok())
      for (size_t i = 0; i < parts_.size(); ++i)
        if (!used_[i]) Fail(absl::StrCat("unknown modifier '.", std::string(parts_[i]), "'"));
    if (!error_.ok()) return error_;
    function_->code.push_back(in_);
    return absl::OkStatus();
  }

  virtual ~DecoderBase() = default;

 protected:
  virtual void Dispatch() = 0;
  void Fail(std::string_view what) {
    if (error_.ok())
      error_ = absl::InvalidArgumentError(
          absl::StrCat("PTX line ", line_, ": ", std::string(mnemonic_), ": ", std::string(what)));
  }

  bool Has(std::string_view part) {
    for (size_t i = 1; i < parts_.size(); ++i) {
      if (!used_[i] && parts_[i] == part) return used_[i] = true;
    }
    return false;
  }
  void Optional(std::initializer_list<const char*> parts) {
    for (const char* part : parts) Has(part);
  }
  void Need(const char* part) {
    if (!Has(part)) Fail(absl::StrCat("'.", part, "' is missing"));
  }
  Type TakeType() {
    for (size_t i = 1; i < parts_.size(); ++i) {
      if (used_[i]) continue;
      const Type type = TypeOf(parts_[i]);
      if (type == Type::kNone) continue;
      used_[i] = true;
      return type;
    }
    Fail("a type is missing");
    return Type::kB32;
  }
  void TakeRounding() {
    constexpr std::pair<const char*, Rounding> kRoundings[] = {{"rn", Rounding::kNearest},
                                                               {"rz", Rounding::kZero},
                                                               {"rm", Rounding::kDown},
                                                               {"rp", Rounding::kUp},
                                                               {"rna", Rounding::kAway}};
    for (const auto& [name, rounding] : kRoundings) {
      if (Has(name)) {
        in_.rounding = rounding;
        in_.has_rounding = true;
      }
      if (rounding != Rounding::kAway && Has(absl::StrCat(name, "i"))) {
        in_.rounding = rounding;
        in_.integer_rounding = true;
      }
    }
  }
  int TakeOneOf(std::initializer_list<const char*> names) {
    int i = 0;
    for (const char* name : names) {
      if (Has(name)) return i;
      ++i;
    }
    return -1;
  }

  // ---- operands

  bool Count(size_t least, size_t most) {
    if (operands_.size() >= least && operands_.size() <= most) return true;
    Fail(absl::StrCat("has ", operands_.size(), " operands"));
    return false;
  }
  int Row(const Operand& operand, Type type) {
    if (operand.kind == Operand::kRow) return operand.row;
    if (operand.kind == Operand::kNumber) {
      if (!operand.is_float) return builder_->Constant(operand.bits);
      if (type == Type::kF64) return builder_->Constant(std::bit_cast<uint64_t>(operand.real));
      return builder_->Constant(std::bit_cast<uint32_t>(static_cast<float>(operand.real)));
    }
    if (operand.kind == Operand::kLabel)
      Fail(absl::StrCat("unknown operand '", operand.name, "'"));
    else
      Fail("an operand is of an unknown form");
    return 0;
  }
  int Source(size_t i, Type type) {
    if (i >= operands_.size()) {
      Fail("an operand is missing");
      return 0;
    }
    if (operands_[i].negated) return Negated(operands_[i]);
    return Row(operands_[i], type);
  }
  // !%p as a source other than a guard: an instruction of its own.
  int Negated(const Operand& operand) {
    Instruction negate;
    negate.op = Op::kNot;
    negate.type = Type::kPred;
    negate.a = Row(operand, Type::kPred);
    negate.d = builder_->NewRow();
    negate.line = line_;
    function_->code.push_back(negate);
    return negate.d;
  }
  int Target(const Operand& operand) {
    if (operand.kind == Operand::kSink) return builder_->NewRow();
    if (operand.kind == Operand::kRow) return operand.row;
    Fail("the result is no register");
    return 0;
  }
  int Dest(size_t i) {
    if (i >= operands_.size()) {
      Fail("an operand is missing");
      return 0;
    }
    return Target(operands_[i]);
  }
  int64_t Number(size_t i) {
    if (i >= operands_.size() || operands_[i].kind != Operand::kNumber) {
      Fail(absl::StrCat("operand ", i + 1, " must be a number"));
      return 0;
    }
    return static_cast<int64_t>(operands_[i].bits);
  }
  void AddressOf(size_t i, int32_t* row, int64_t* offset) {
    if (i >= operands_.size() || operands_[i].kind != Operand::kAddress) {
      Fail(absl::StrCat("operand ", i + 1, " must be an address"));
      return;
    }
    *row = operands_[i].row;
    *offset = operands_[i].offset;
  }
  // A second address has no offset field of its own: a row holds it, offset included.
  int AddressRow(size_t i) {
    int32_t row = -1;
    int64_t offset = 0;
    AddressOf(i, &row, &offset);
    if (row < 0) return builder_->Constant(static_cast<uint64_t>(offset));
    if (offset == 0) return row;
    Instruction add;
    add.op = Op::kAdd;
    add.type = Type::kU64;
    add.a = row;
    add.b = builder_->Constant(static_cast<uint64_t>(offset));
    add.d = builder_->NewRow();
    add.line = line_;
    function_->code.push_back(add);
    return add.d;
  }
  void StartList() { in_.list = static_cast<int32_t>(function_->operands.size()); }
  void Push(int row) {
    function_->operands.push_back(row);
    ++in_.list_size;
  }
  // The elements of a braced list, or the single operand; returns how many.
  int PushList(size_t i, Type type, bool result) {
    if (i >= operands_.size()) {
      Fail("an operand is missing");
      return 0;
    }
    const Operand& operand = operands_[i];
    if (operand.kind != Operand::kList) {
      Push(result ? Target(operand) : Row(operand, type));
      return 1;
    }
    for (const Operand& element : operand.list) Push(result ? Target(element) : Row(element, type));
    return static_cast<int>(operand.list.size());
  }

  Space TakeSpace() {
    if (Has("global")) return Space::kGlobal;
    if (Has("shared") || Has("shared::cta")) return Space::kShared;
    if (Has("shared::cluster")) return Space::kCluster;
    if (Has("local")) return Space::kLocal;
    if (Has("const")) return Space::kConst;
    if (Has("param") || Has("param::entry")) return Space::kParam;
    return Space::kGeneric;
  }

  FunctionBuilder* builder_;
  Function* function_;
  std::string_view mnemonic_;
  std::vector<std::string_view> parts_;
  std::vector<bool> used_;
  std::vector<Operand> operands_;
  int line_;
  Instruction in_;
  absl::Status error_;
};

}  // namespace outboard::ptx
