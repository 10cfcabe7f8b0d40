// Text to tokens, declarations and operands. Instructions are decode.cc's.
#include "tests/gpu/text/parser.h"

#include <cctype>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/gpu/text/lexer.h"

namespace outboard::ptx {
namespace {

// A module of the largest kernels has some 20,000 lines.
constexpr size_t kTextBytesMax = 64u << 20;

int AlignUp(int value, int align) { return (value + align - 1) / align * align; }

// What a name stands for at module level or in a function.
struct Symbol {
  enum Kind : uint8_t { kShared, kGlobal, kParam, kLocal };
  Kind kind = kShared;
  int64_t address = 0;
};

class Parser {
 public:
  Parser(std::string_view text, std::vector<Token> tokens)
      : tokens_(std::move(tokens)), module_(std::make_unique<Module>()) {
    size_t begin = 0;
    while (begin <= text.size()) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      source_lines_.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    module_->shared_bytes = kSharedBase;
  }

  absl::StatusOr<std::unique_ptr<Module>> Run() {
    while (!AtEnd()) OB_RETURN_IF_ERROR(ModuleItem());
    module_->dynamic_shared = AlignUp(module_->shared_bytes, dynamic_align_);
    // The address of dynamic shared memory is known once all static data is.
    for (const auto& [function, row] : dynamic_rows_)
      function->constants.push_back({row, static_cast<uint64_t>(module_->dynamic_shared)});
    return std::move(module_);
  }

 private:
  struct Data {
    std::string name;
    int bytes = 0, align = 1;
    bool is_extern_array = false;
    bool initialised = false;
    std::vector<uint8_t> initial;
  };

  bool AtEnd() const { return at_ >= tokens_.size(); }
  std::string_view Peek(size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead].text : std::string_view();
  }
  int Line() const { return AtEnd() ? static_cast<int>(source_lines_.size()) : tokens_[at_].line; }
  std::string_view Next() { return AtEnd() ? std::string_view() : tokens_[at_++].text; }
  bool Take(std::string_view text) {
    if (Peek() != text) return false;
    ++at_;
    return true;
  }
  absl::Status Expect(std::string_view text) {
    if (Take(text)) return absl::OkStatus();
    return ErrorAt(Line(), absl::StrCat("expected '", std::string(text), "' before '",
                                        std::string(Peek()), "'"));
  }

  absl::Status Integer(int64_t* value) {
    const bool negative = Take("-");
    const std::string word(Next());
    if (word.empty() || !std::isdigit(word[0])) return ErrorAt(Line(), "expected a number");
    *value = static_cast<int64_t>(std::strtoull(word.c_str(), nullptr, 0));
    if (negative) *value = -*value;
    return absl::OkStatus();
  }

  absl::Status ModuleItem() {
    const int line = Line();
    if (Take(".version")) {
      const std::string version(Next());
      module_->version = static_cast<int>(std::strtod(version.c_str(), nullptr) * 10 + 0.5);
      return absl::OkStatus();
    }
    if (Take(".target")) {
      module_->target = std::string(Next());
      while (Take(",")) Next();
      return absl::OkStatus();
    }
    if (Take(".address_size")) {
      if (Next() != "64") return ErrorAt(line, "only .address_size 64 is known");
      return absl::OkStatus();
    }
    if (Take(".section")) {
      while (!AtEnd() && Peek() != "{") Next();
      while (!AtEnd() && Next() != "}") {
      }
      return absl::OkStatus();
    }
    bool is_extern = false;
    while (true) {
      if (Take(".visible") || Take(".weak") || Take(".common")) continue;
      if (Take(".extern")) {
        is_extern = true;
        continue;
      }
      break;
    }
    if (Take(".entry")) return Entry();
    if (Peek() == ".func") return ErrorAt(line, ".func is not known: inline every function");
    if (Peek() == ".shared" || Peek() == ".global" || Peek() == ".const")
      return DataItem(is_extern, &symbols_);
    return ErrorAt(line, absl::StrCat("unknown directive '", std::string(Peek()), "'"));
  }

  // .shared .align 4 .b8 name[16]; with values for .global and .const.
  absl::Status DataItem(bool is_extern, std::map<std::string, Symbol>* symbols) {
    const int line = Line();
    const std::string space(Next());
    Data data;
    Type type = Type::kNone;
    while (!Peek().empty() && Peek()[0] == '.') {
      if (Take(".align")) {
        int64_t align = 1;
        OB_RETURN_IF_ERROR(Integer(&align));
        data.align = static_cast<int>(align);
        continue;
      }
      if (Take(".attribute")) return ErrorAt(line, "unknown directive '.attribute'");
      type = TypeOf(Next().substr(1));
      if (type == Type::kNone) return ErrorAt(line, "unknown type of data");
    }
    data.name = std::string(Next());
    data.bytes = BytesOf(type);
    data.align = std::max(data.align, BytesOf(type));
    while (Take("[")) {
      if (Take("]")) {
        data.is_extern_array = true;
        break;
      }
      int64_t count = 0;
      OB_RETURN_IF_ERROR(Integer(&count));
      if (count < 0 || count > (1 << 30)) return ErrorAt(line, "an array is too long");
      data.bytes *= static_cast<int>(count);
      OB_RETURN_IF_ERROR(Expect("]"));
    }
    if (Take("=")) OB_RETURN_IF_ERROR(Initial(type, &data));
    OB_RETURN_IF_ERROR(Expect(";"));
    if (space == ".shared") {
      if (is_extern || data.is_extern_array) {
        dynamic_align_ = std::max(dynamic_align_, data.align);
        module_->uses_dynamic_shared = true;
        (*symbols)[data.name] = {Symbol::kShared, -1};
        return absl::OkStatus();
      }
      const int address = AlignUp(module_->shared_bytes, data.align);
      module_->shared_bytes = address + data.bytes;
      (*symbols)[data.name] = {Symbol::kShared, address};
      return absl::OkStatus();
    }
    if (is_extern) return ErrorAt(line, absl::StrCat("'", data.name, "' is defined nowhere"));
    (*symbols)[data.name] = {Symbol::kGlobal, 0};
    data.initial.resize(data.bytes);
    module_->globals.push_back(
        {data.name, data.bytes, data.align, data.initialised || space == ".const", data.initial});
    return absl::OkStatus();
  }

  absl::Status Initial(Type type, Data* data) {
    data->initialised = true;
    std::vector<uint8_t> bytes;
    int depth = 0;
    do {
      while (Take("{")) ++depth;
      const bool negative = Take("-");
      const int line = Line();
      Operand number;
      if (!ReadNumber(Next(), negative, &number))
        return ErrorAt(line, "an initial value that is not a number is not known");
      for (int i = 0; i < BytesOf(type); ++i) bytes.push_back(number.bits >> (8 * i));
      while (depth > 0 && Take("}")) --depth;
    } while (Take(","));
    if (bytes.size() > static_cast<size_t>(data->bytes))
      return ErrorAt(Line(), absl::StrCat("more initial values than '", data->name, "' has room"));
    bytes.resize(data->bytes);
    data->initial = std::move(bytes);
    return absl::OkStatus();
  }

  absl::Status Entry() {
    auto function = std::make_unique<Function>();
    function->name = std::string(Next());
    FunctionBuilder builder(function.get(), module_.get());
    local_symbols_.clear();
    if (Take("(")) {
      while (!Take(")")) {
        OB_RETURN_IF_ERROR(Param(function.get()));
        Take(",");
        if (AtEnd()) return ErrorAt(Line(), "a list of parameters has no end");
      }
    }
    OB_RETURN_IF_ERROR(PerformanceDirectives(function.get()));
    if (Take(";")) return absl::OkStatus();  // a declaration
    OB_RETURN_IF_ERROR(Body(&builder));
    const std::string name = function->name;
    module_->functions[name] = std::move(function);
    return absl::OkStatus();
  }

  absl::Status Param(Function* function) {
    const int line = Line();
    OB_RETURN_IF_ERROR(Expect(".param"));
    int align = 1;
    Type type = Type::kNone;
    while (!Peek().empty() && Peek()[0] == '.') {
      if (Take(".align")) {
        int64_t value = 1;
        OB_RETURN_IF_ERROR(Integer(&value));
        align = static_cast<int>(value);
        continue;
      }
      if (Take(".ptr") || Take(".global") || Take(".shared") || Take(".const") || Take(".local"))
        continue;  // what a pointer points to
      type = TypeOf(Next().substr(1));
      if (type == Type::kNone) return ErrorAt(line, "unknown type of a parameter");
    }
    Parameter parameter;
    parameter.name = std::string(Next());
    parameter.bytes = BytesOf(type);
    // The alignment behind .ptr is the pointer's target's, not the parameter's.
    if (BytesOf(type) > 1) align = BytesOf(type);
    if (Take("[")) {
      int64_t count = 0;
      OB_RETURN_IF_ERROR(Integer(&count));
      if (count <= 0 || count > 32764) return ErrorAt(line, "a parameter is too long");
      parameter.bytes *= static_cast<int>(count);
      OB_RETURN_IF_ERROR(Expect("]"));
    }
    parameter.offset = AlignUp(function->parameter_bytes, align);
    function->parameter_bytes = parameter.offset + parameter.bytes;
    local_symbols_[parameter.name] = {Symbol::kParam, parameter.offset};
    function->parameters.push_back(parameter);
    return absl::OkStatus();
  }

  absl::Status PerformanceDirectives(Function* function) {
    while (!Peek().empty() && Peek()[0] == '.') {
      const int line = Line();
      const std::string name(Next());
      std::vector<int64_t> values;
      while (!Peek().empty() && std::isdigit(Peek()[0])) {
        int64_t value = 0;
        OB_RETURN_IF_ERROR(Integer(&value));
        values.push_back(value);
        if (!Take(",")) break;
      }
      int64_t product = 1;
      for (const int64_t value : values) product *= value;
      if (name == ".maxntid") {
        function->max_threads = static_cast<int>(product);
      } else if (name == ".reqntid") {
        function->required_threads = static_cast<int>(product);
      } else if (name == ".reqnctapercluster") {
        for (size_t i = 0; i < 3; ++i)
          function->cluster[i] = i < values.size() ? static_cast<int>(values[i]) : 1;
      } else if (name == ".pragma") {
        Next();
        Take(";");
      } else if (name == ".maxnreg") {
        function->registers = static_cast<int>(product);
      } else if (name == ".minnctapersm") {
        function->blocks_min = static_cast<int>(product);
      } else if (name != ".explicitcluster" && name != ".maxclusterrank" && name != ".noreturn") {
        return ErrorAt(line, absl::StrCat("unknown directive '", name, "'"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Body(FunctionBuilder* builder) {
    OB_RETURN_IF_ERROR(Expect("{"));
    std::vector<int> parents = {-1};
    scopes_.clear();
    scopes_.push_back({});
    std::vector<int> ids = {0};
    std::map<std::pair<int, std::string>, int> labels;
    Function* function = builder->function();
    while (!ids.empty()) {
      if (AtEnd()) return ErrorAt(Line(), "a function has no end");
      builder->scope = ids.back();
      if (Take("{")) {
        parents.push_back(ids.back());
        ids.push_back(static_cast<int>(parents.size()) - 1);
        scopes_.push_back({});
      } else if (Take("}")) {
        ids.pop_back();
        scopes_.pop_back();
      } else if (Take(";")) {
      } else if (Peek(1) == ":" && StartsWord(Peek()[0]) && Peek()[0] != '.') {
        labels[{ids.back(), std::string(Next())}] = static_cast<int>(function->code.size());
        Next();
      } else if (Peek() == ".reg") {
        OB_RETURN_IF_ERROR(Registers(builder));
      } else if (Peek() == ".shared") {
        OB_RETURN_IF_ERROR(DataItem(false, &local_symbols_));
      } else if (Peek() == ".local") {
        OB_RETURN_IF_ERROR(Local(function));
      } else if (Take(".pragma")) {
        Next();
        OB_RETURN_IF_ERROR(Expect(";"));
      } else {
        OB_RETURN_IF_ERROR(Statement(builder));
      }
    }
    MarkProductRows(function);
    // What runs past the end leaves.
    Instruction leave;
    leave.op = Op::kRet;
    leave.line = Line();
    function->code.push_back(leave);
    for (const FunctionBuilder::Branch& branch : builder->branches) {
      int scope = branch.scope;
      while (scope >= 0 && labels.count({scope, branch.label}) == 0) scope = parents[scope];
      if (scope < 0) return ErrorAt(branch.line, absl::StrCat("no label '", branch.label, "'"));
      const int target = labels[{scope, branch.label}];
      Instruction& instruction = function->code[branch.instruction];
      instruction.target = target;
    }
    return absl::OkStatus();
  }

  static void MarkProductRows(Function* function) {
    for (const Instruction& in : function->code) {
      if (in.op != Op::kWgmma) continue;
      function->product_rows.resize(static_cast<size_t>(function->rows));
      for (int i = 0; i < in.list_size; ++i)
        function->product_rows[function->operands[in.list + i]] = 1;
    }
  }

  absl::Status Registers(FunctionBuilder* builder) {
    const int line = Line();
    Next();
    if (TypeOf(Next().substr(1)) == Type::kNone) return ErrorAt(line, "unknown type of registers");
    do {
      const std::string name(Next());
      if (Take("<")) {
        int64_t count = 0;
        OB_RETURN_IF_ERROR(Integer(&count));
        OB_RETURN_IF_ERROR(Expect(">"));
        if (count > 100000) return ErrorAt(line, "too many registers");
        // Rows are given on first use: more may be declared than is used.
        scopes_.back().ranges[name] = static_cast<int>(count);
      } else {
        scopes_.back().registers[name] = builder->NewRow();
      }
    } while (Take(","));
    return Expect(";");
  }

  absl::Status Local(Function* function) {
    const int line = Line();
    Next();
    int64_t align = 1, count = 1;
    if (Take(".align")) OB_RETURN_IF_ERROR(Integer(&align));
    const Type type = TypeOf(Next().substr(1));
    if (type == Type::kNone) return ErrorAt(line, "unknown type of local memory");
    const std::string name(Next());
    if (Take("[")) {
      OB_RETURN_IF_ERROR(Integer(&count));
      OB_RETURN_IF_ERROR(Expect("]"));
    }
    if (count > (1 << 19)) return ErrorAt(line, "too much local memory");
    const int address =
        AlignUp(function->local_bytes, static_cast<int>(std::max<int64_t>(align, 1)));
    function->local_bytes = address + BytesOf(type) * static_cast<int>(count);
    local_symbols_[name] = {Symbol::kLocal, address};
    return Expect(";");
  }

  absl::Status Statement(FunctionBuilder* builder) {
    const int line = Line();
    int guard = -1;
    bool negated = false;
    if (Take("@")) {
      negated = Take("!");
      const std::string name(Next());
      guard = RegisterRow(builder, name);
      if (guard < 0) return ErrorAt(line, absl::StrCat("unknown register '", name, "'"));
    }
    const std::string_view mnemonic = Next();
    std::vector<Operand> operands;
    while (!Take(";")) {
      if (AtEnd() || Peek() == "}") return ErrorAt(line, "a statement has no end");
      Operand operand;
      OB_RETURN_IF_ERROR(ParseOperand(builder, &operand));
      operands.push_back(std::move(operand));
      if (!Take(",") && Peek() != ";")
        return ErrorAt(line, absl::StrCat("unexpected '", std::string(Peek()), "' in ",
                                          std::string(mnemonic)));
    }
    std::string_view text = source_lines_[line - 1];
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
      text.remove_prefix(1);
    builder->function()->lines[line] = std::string(text.substr(0, 100));
    return builder->Decode(mnemonic, std::move(operands), guard, negated, line);
  }

  absl::Status ParseOperand(FunctionBuilder* builder, Operand* out) {
    const int line = Line();
    if (Take("[")) {
      OB_RETURN_IF_ERROR(Address(builder, out));
    } else if (Take("{")) {
      out->kind = Operand::kList;
      while (!Take("}")) {
        Operand element;
        OB_RETURN_IF_ERROR(ParseOperand(builder, &element));
        out->list.push_back(std::move(element));
        if (!Take(",") && Peek() != "}") return ErrorAt(line, "a list of operands has no end");
      }
    } else if (Take("!")) {
      OB_RETURN_IF_ERROR(ParseOperand(builder, out));
      out->negated = true;
    } else if (Peek() == "-" || (!Peek().empty() && std::isdigit(Peek()[0]))) {
      const bool negative = Take("-");
      if (!ReadNumber(Next(), negative, out)) return ErrorAt(line, "expected a number");
    } else if (Take("_")) {
      out->kind = Operand::kSink;
    } else {
      OB_RETURN_IF_ERROR(Named(builder, std::string(Next()), out));
      if (out->kind == Operand::kNumber && (Peek() == "+" || Peek() == "-")) {
        const bool minus = Next() == "-";
        int64_t offset = 0;
        OB_RETURN_IF_ERROR(Integer(&offset));
        out->bits += minus ? -offset : offset;
      }
    }
    if (Take("|")) {
      Operand second;
      OB_RETURN_IF_ERROR(ParseOperand(builder, &second));
      out->second.push_back(std::move(second));
    }
    return absl::OkStatus();
  }

  // A register, a special register, an address or a label.
  absl::Status Named(FunctionBuilder* builder, const std::string& name, Operand* out) {
    if (name == "WARP_SZ") {
      out->kind = Operand::kNumber;
      out->bits = 32;
      return absl::OkStatus();
    }
    out->kind = Operand::kRow;
    out->row = RegisterRow(builder, name);
    if (out->row >= 0) return absl::OkStatus();
    bool found = false;
    const Special special = SpecialOf(name, &found);
    if (found) {
      out->row = builder->SpecialRow(special);
      return absl::OkStatus();
    }
    if (name[0] == '%') {
      out->kind = Operand::kLabel;  // %clock and the like: decode.cc knows or refuses them
      out->name = name;
      return absl::OkStatus();
    }
    const Symbol* symbol = FindSymbol(name);
    if (symbol == nullptr) {
      out->kind = Operand::kLabel;
      out->name = name;
      return absl::OkStatus();
    }
    switch (symbol->kind) {
      case Symbol::kGlobal: out->row = builder->GlobalRow(name); return absl::OkStatus();
      case Symbol::kShared:
        if (symbol->address < 0) {
          out->row = DynamicRow(builder);
          return absl::OkStatus();
        }
        break;
      case Symbol::kParam: out->param = true; break;
      case Symbol::kLocal: break;
    }
    out->kind = Operand::kNumber;
    out->bits = static_cast<uint64_t>(symbol->address);
    return absl::OkStatus();
  }

  absl::Status Address(FunctionBuilder* builder, Operand* out) {
    const int line = Line();
    Operand base;
    OB_RETURN_IF_ERROR(ParseBase(builder, &base));
    if (base.kind == Operand::kLabel)
      return ErrorAt(line, absl::StrCat("unknown address '", base.name, "'"));
    out->row = base.kind == Operand::kRow ? base.row : -1;
    out->offset = base.kind == Operand::kNumber ? static_cast<int64_t>(base.bits) : 0;
    out->param = base.param;
    out->kind = Operand::kAddress;
    if (Peek() == "+" || Peek() == "-") {
      const bool minus = Next() == "-";
      int64_t offset = 0;
      OB_RETURN_IF_ERROR(Integer(&offset));
      out->offset += minus ? -offset : offset;
    }
    if (Take(",")) {
      Operand coordinates;
      OB_RETURN_IF_ERROR(ParseOperand(builder, &coordinates));
      if (coordinates.kind == Operand::kList) {
        out->list = coordinates.list;
      } else {
        out->list.push_back(coordinates);
      }
    }
    return Expect("]");
  }

  absl::Status ParseBase(FunctionBuilder* builder, Operand* base) {
    if (!Peek().empty() && std::isdigit(Peek()[0])) {
      ReadNumber(Next(), false, base);
      return absl::OkStatus();
    }
    return Named(builder, std::string(Next()), base);
  }

  struct RegisterScope {
    std::map<std::string, int, std::less<>> registers;
    std::map<std::string, int, std::less<>> ranges;  // %r<10>: %r0 to %r9
  };

  int RegisterRow(FunctionBuilder* builder, const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto it = scope->registers.find(name);
      if (it != scope->registers.end()) return it->second;
      size_t digits = name.size();
      while (digits > 0 && std::isdigit(name[digits - 1])) --digits;
      if (digits == name.size() || name.size() - digits > 6) continue;
      const auto range = scope->ranges.find(name.substr(0, digits));
      if (range == scope->ranges.end() || std::atoi(name.c_str() + digits) >= range->second)
        continue;
      return scope->registers[name] = builder->NewRow();
    }
    return -1;
  }

  int DynamicRow(FunctionBuilder* builder) {
    for (const auto& [function, row] : dynamic_rows_)
      if (function == builder->function()) return row;
    const int row = builder->NewRow();
    dynamic_rows_.push_back({builder->function(), row});
    return row;
  }

  const Symbol* FindSymbol(const std::string& name) const {
    const auto local = local_symbols_.find(name);
    if (local != local_symbols_.end()) return &local->second;
    const auto it = symbols_.find(name);
    return it == symbols_.end() ? nullptr : &it->second;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::vector<std::string_view> source_lines_;
  std::unique_ptr<Module> module_;
  int dynamic_align_ = 16;
  std::map<std::string, Symbol> symbols_;
  std::map<std::string, Symbol> local_symbols_;
  std::vector<RegisterScope> scopes_;
  std::vector<std::pair<Function*, int>> dynamic_rows_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Module>> Parse(std::string_view text) {
  if (text.size() > kTextBytesMax)
    return absl::ResourceExhaustedError("a module of PTX has more than 64 MiB");
  absl::StatusOr<std::vector<Token>> tokens = ReadTokens(text);
  if (!tokens.ok()) return tokens.status();
  return Parser(text, *std::move(tokens)).Run();
}

}  // namespace outboard::ptx
