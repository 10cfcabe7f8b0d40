// What parser.cc (text to operands) and decode.cc (operands to instructions) share.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tests/gpu/text/module.h"

namespace outboard::ptx {

struct Operand {
  enum Kind : uint8_t { kRow, kNumber, kAddress, kList, kSink, kLabel };
  Kind kind = kSink;
  int row = -1;           // kRow, and the base of kAddress (-1: none)
  bool negated = false;   // !%p or -%f
  bool is_float = false;  // a number with a decimal point
  uint64_t bits = 0;      // kNumber
  double real = 0;
  int64_t offset = 0;           // kAddress
  bool param = false;           // kAddress of a parameter
  std::string name;             // kLabel
  std::vector<Operand> list;    // kList; the coordinates of a tensor's address
  std::vector<Operand> second;  // what follows '|'
};

// A function while it is read.
class FunctionBuilder {
 public:
  FunctionBuilder(Function* function, Module* module) : function_(function), module_(module) {}

  Function* function() { return function_; }
  Module* module() { return module_; }
  int NewRow() { return function_->rows++; }
  int Constant(uint64_t bits);
  int SpecialRow(Special special);
  int GlobalRow(const std::string& name);
  int CarryRow();

  // Adds the instruction that `mnemonic` and `operands` spell; `guard` is -1 or the predicate's
  // row.
  absl::Status Decode(std::string_view mnemonic, std::vector<Operand> operands, int guard,
                      bool guard_negated, int line);

  // Branches wait for their labels.
  struct Branch {
    size_t instruction = 0;
    std::string label;
    int scope = 0;
    int line = 0;
  };
  std::vector<Branch> branches;
  int scope = 0;

 private:
  Function* function_;
  Module* module_;
  std::map<uint64_t, int> constants_;
  std::map<Special, int> specials_;
  std::map<std::string, int> globals_;
};

// The special register of that name, if there is one (%tid.x); `found` says so.
Special SpecialOf(std::string_view name, bool* found);
Type TypeOf(std::string_view name);  // kNone for what names no type

}  // namespace outboard::ptx
