// Mnemonics and operands to instructions. Each modifier is taken by name; one that is left over is an error.
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/gpu/ptx/parser.h"

namespace outboard::ptx {
namespace {

struct NamedType {
  const char* name;
  Type type;
};
constexpr NamedType kTypes[] = {
    {"pred", Type::kPred}, {"b8", Type::kB8},   {"b16", Type::kB16},       {"b32", Type::kB32},
    {"b64", Type::kB64},   {"b128", Type::kB128}, {"u8", Type::kU8},       {"u16", Type::kU16},
    {"u32", Type::kU32},   {"u64", Type::kU64}, {"s8", Type::kS8},         {"s16", Type::kS16},
    {"s32", Type::kS32},   {"s64", Type::kS64}, {"f16", Type::kF16},       {"f16x2", Type::kF16x2},
    {"bf16", Type::kBf16}, {"bf16x2", Type::kBf16x2}, {"f32", Type::kF32}, {"f64", Type::kF64},
    {"tf32", Type::kTf32}, {"e4m3", Type::kE4m3}, {"e5m2", Type::kE5m2},   {"e4m3x2", Type::kE4m3x2},
    {"e5m2x2", Type::kE5m2x2}};

struct Simple {
  const char* name;
  Op op;
  int sources;
};
// Instructions of the form: d, sources.
constexpr Simple kSimple[] = {
    {"add", Op::kAdd, 2},       {"sub", Op::kSub, 2},     {"mul", Op::kMul, 2},
    {"mad", Op::kMad, 3},       {"fma", Op::kFma, 3},     {"mul24", Op::kMul24, 2},
    {"mad24", Op::kMad24, 3},   {"sad", Op::kSad, 3},     {"div", Op::kDiv, 2},
    {"rem", Op::kRem, 2},       {"abs", Op::kAbs, 1},     {"neg", Op::kNeg, 1},
    {"min", Op::kMin, 2},       {"max", Op::kMax, 2},     {"popc", Op::kPopc, 1},
    {"clz", Op::kClz, 1},       {"bfind", Op::kBfind, 1}, {"brev", Op::kBrev, 1},
    {"bfe", Op::kBfe, 3},       {"bfi", Op::kBfi, 4},     {"bmsk", Op::kBmsk, 2},
    {"szext", Op::kSzext, 2},   {"dp4a", Op::kDp4a, 3},   {"dp2a", Op::kDp2a, 3},
    {"and", Op::kAnd, 2},       {"or", Op::kOr, 2},       {"xor", Op::kXor, 2},
    {"not", Op::kNot, 1},       {"cnot", Op::kCnot, 1},   {"shl", Op::kShl, 2},
    {"shr", Op::kShr, 2},       {"shf", Op::kShf, 3},     {"prmt", Op::kPrmt, 3},
    {"rcp", Op::kRcp, 1},       {"sqrt", Op::kSqrt, 1},   {"rsqrt", Op::kRsqrt, 1},
    {"sin", Op::kSin, 1},       {"cos", Op::kCos, 1},     {"lg2", Op::kLg2, 1},
    {"ex2", Op::kEx2, 1},       {"tanh", Op::kTanh, 1},   {"copysign", Op::kCopysign, 2},
    {"addc", Op::kAddCarry, 2}, {"subc", Op::kSubCarry, 2}, {"madc", Op::kMadCarry, 3},
    {"fns", Op::kFns, 3}};

constexpr const char* kCompares[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                     "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
constexpr const char* kAtomics[] = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"};

class Decoder {
 public:
  Decoder(FunctionBuilder* builder, std::string_view mnemonic, std::vector<Operand> operands,
          int line)
      : builder_(builder), function_(builder->function()), mnemonic_(mnemonic),
        operands_(std::move(operands)), line_(line) {
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

 private:
  void Fail(std::string_view what) {
    if (error_.ok())
      error_ = absl::InvalidArgumentError(
          absl::StrCat("PTX line ", line_, ": ", std::string(mnemonic_), ": ",
                                                        std::string(what)));
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
    constexpr std::pair<const char*, Rounding> kRoundings[] = {
        {"rn", Rounding::kNearest}, {"rz", Rounding::kZero}, {"rm", Rounding::kDown},
        {"rp", Rounding::kUp},      {"rna", Rounding::kAway}};
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

  // ---- families

  void Dispatch() {
    const std::string_view base = parts_[0];
    if ((base == "add" || base == "sub" || base == "mad") && Has("cc")) {
      in_.flags = kFlagCarryOut;
      return Plain(base == "add" ? Op::kAddCarry : base == "sub" ? Op::kSubCarry : Op::kMadCarry,
                   base == "mad" ? 3 : 2);
    }
    for (const Simple& simple : kSimple)
      if (base == simple.name) return Plain(simple.op, simple.sources);
    using Family = void (Decoder::*)();
    static const std::map<std::string_view, Family> families = {
        {"setp", &Decoder::Setp}, {"set", &Decoder::Set}, {"selp", &Decoder::Selp},
        {"slct", &Decoder::Slct}, {"mov", &Decoder::Mov}, {"cvt", &Decoder::Cvt},
        {"cvta", &Decoder::Cvta}, {"isspacep", &Decoder::Isspacep}, {"lop3", &Decoder::Lop3},
        {"testp", &Decoder::Testp}, {"bra", &Decoder::Bra}, {"ret", &Decoder::Leave},
        {"exit", &Decoder::Leave}, {"trap", &Decoder::Trap}, {"ld", &Decoder::Load},
        {"ldu", &Decoder::Load}, {"st", &Decoder::Store}, {"atom", &Decoder::Atom},
        {"red", &Decoder::Atom}, {"membar", &Decoder::Fence}, {"fence", &Decoder::Fence},
        {"shfl", &Decoder::Shfl}, {"vote", &Decoder::Vote}, {"match", &Decoder::Match},
        {"redux", &Decoder::Redux}, {"activemask", &Decoder::Activemask},
        {"elect", &Decoder::Elect}, {"bar", &Decoder::Bar}, {"barrier", &Decoder::Bar},
        {"setmaxnreg", &Decoder::Setmaxnreg}, {"griddepcontrol", &Decoder::Griddep},
        {"nanosleep", &Decoder::Nanosleep}, {"mapa", &Decoder::Mapa},
        {"getctarank", &Decoder::Getctarank}, {"cp", &Decoder::Copy},
        {"mbarrier", &Decoder::Mbarrier}, {"prefetch", &Decoder::Prefetch},
        {"ldmatrix", &Decoder::Ldmatrix}, {"stmatrix", &Decoder::Ldmatrix},
        {"mma", &Decoder::Mma}, {"wgmma", &Decoder::Wgmma}};
    const auto it = families.find(base);
    if (it == families.end()) return Fail("unknown instruction");
    (this->*it->second)();
  }

  void Plain(Op op, int sources) {
    in_.op = op;
    if (op == Op::kAddCarry || op == Op::kSubCarry || op == Op::kMadCarry) {
      if (parts_[0].back() == 'c') in_.flags |= kFlagCarryIn;
      if (Has("cc")) in_.flags |= kFlagCarryOut;
      in_.e = builder_->CarryRow();
    }
    switch (op) {
      case Op::kMul: case Op::kMad: case Op::kMul24: case Op::kMad24: case Op::kMadCarry:
      case Op::kDp2a:
        in_.mode = static_cast<uint8_t>(std::max(0, TakeOneOf({"lo", "hi", "wide"})));
        break;
      case Op::kShf:
        in_.mode = static_cast<uint8_t>(std::max(0, TakeOneOf({"l", "r"})));
        in_.sat = Has("clamp");
        if (!in_.sat) Need("wrap");
        break;
      case Op::kPrmt:
        in_.mode = static_cast<uint8_t>(
            1 + TakeOneOf({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}));
        break;
      case Op::kBmsk: case Op::kSzext: in_.sat = TakeOneOf({"clamp", "wrap"}) == 0; break;
      case Op::kBfind: in_.mode = Has("shiftamt"); break;
      case Op::kMin: case Op::kMax: in_.nan = Has("NaN"); break;
      default: break;
    }
    TakeRounding();
    in_.ftz = Has("ftz");
    in_.sat |= Has("sat");
    in_.relu = Has("relu");
    in_.approx = Has("approx") || Has("full");
    Has("noftz");
    in_.type = TakeType();
    if (op == Op::kDp4a || op == Op::kDp2a) in_.from = TakeType();
    if (in_.relu && op != Op::kFma && op != Op::kMin && op != Op::kMax)
      return Fail("unknown modifier '.relu'");
    if (!Count(sources + 1, sources + 1)) return;
    in_.d = Dest(0);
    int32_t* slots[] = {&in_.a, &in_.b, &in_.c, &in_.e};
    for (int i = 0; i < sources; ++i) *slots[i] = Source(i + 1, in_.type);
  }

  void TakeCompare() {
    constexpr std::pair<const char*, Compare> kUnsigned[] = {
        {"lo", Compare::kLt}, {"ls", Compare::kLe}, {"hi", Compare::kGt}, {"hs", Compare::kGe}};
    for (size_t i = 0; i < std::size(kCompares); ++i) {
      if (!Has(kCompares[i])) continue;
      in_.mode = static_cast<uint8_t>(i);
      break;
    }
    for (const auto& [name, compare] : kUnsigned)
      if (Has(name)) in_.mode = static_cast<uint8_t>(compare);
    in_.logic = static_cast<Logic>(1 + TakeOneOf({"and", "or", "xor"}));
    in_.ftz = Has("ftz");
  }
  void Setp() {
    in_.op = Op::kSetp;
    TakeCompare();
    in_.type = TakeType();
    if (!Count(3, 4)) return;
    in_.d = Dest(0);
    if (!operands_[0].second.empty()) in_.d2 = Target(operands_[0].second[0]);
    in_.a = Source(1, in_.type);
    in_.b = Source(2, in_.type);
    if (in_.logic != Logic::kNone) in_.c = Source(3, Type::kPred);
  }
  void Set() {
    in_.op = Op::kSet;
    TakeCompare();
    in_.type = TakeType();
    in_.from = TakeType();
    if (!Count(3, 4)) return;
    in_.d = Dest(0);
    in_.a = Source(1, in_.from);
    in_.b = Source(2, in_.from);
    if (in_.logic != Logic::kNone) in_.c = Source(3, Type::kPred);
  }
  void Selp() {
    in_.op = Op::kSelp;
    in_.type = TakeType();
    if (!Count(4, 4)) return;
    in_.d = Dest(0);
    in_.a = Source(1, in_.type);
    in_.b = Source(2, in_.type);
    in_.c = Source(3, Type::kPred);
  }
  void Slct() {
    in_.op = Op::kSlct;
    in_.ftz = Has("ftz");
    in_.type = TakeType();
    in_.from = TakeType();
    if (!Count(4, 4)) return;
    in_.d = Dest(0);
    in_.a = Source(1, in_.type);
    in_.b = Source(2, in_.type);
    in_.c = Source(3, in_.from);
  }
  void Testp() {
    in_.op = Op::kTestp;
    in_.mode = static_cast<uint8_t>(TakeOneOf(
        {"finite", "infinite", "number", "notanumber", "normal", "subnormal"}));
    in_.type = TakeType();
    if (!Count(2, 2)) return;
    in_.d = Dest(0);
    in_.a = Source(1, in_.type);
  }
  void Lop3() {
    in_.op = Op::kLop3;
    in_.type = TakeType();
    if (!Count(5, 5)) return;
    in_.d = Dest(0);
    in_.a = Source(1, in_.type);
    in_.b = Source(2, in_.type);
    in_.c = Source(3, in_.type);
    in_.offset = Number(4);
  }

  void Mov() {
    in_.type = TakeType();
    if (!Count(2, 2)) return;
    if (operands_[0].kind == Operand::kList || operands_[1].kind == Operand::kList) {
      const bool pack = operands_[1].kind == Operand::kList;
      in_.op = pack ? Op::kPack : Op::kUnpack;
      StartList();
      const int count = PushList(pack ? 1 : 0, in_.type, !pack);
      if (count != 2 && count != 4) return Fail("a list of 2 or 4 registers is known");
      if (pack) {
        in_.d = Dest(0);
      } else {
        in_.a = Source(1, in_.type);
      }
      return;
    }
    in_.op = Op::kMov;
    in_.d = Dest(0);
    if (operands_[1].kind == Operand::kLabel &&
        (operands_[1].name == "%clock" || operands_[1].name == "%clock64" ||
         operands_[1].name == "%globaltimer")) {
      in_.op = Op::kClock;
      return;
    }
    in_.a = Source(1, in_.type);
  }

  void Cvt() {
    in_.op = Op::kCvt;
    TakeRounding();
    in_.ftz = Has("ftz");
    in_.sat = Has("sat") || Has("satfinite");
    in_.relu = Has("relu");
    in_.type = TakeType();
    in_.from = TakeType();
    const bool pair = in_.type == Type::kF16x2 || in_.type == Type::kBf16x2 ||
                      in_.type == Type::kE4m3x2 || in_.type == Type::kE5m2x2;
    if (pair) in_.op = Op::kCvtPair;
    if (!Count(2, 3)) return;
    in_.d = Dest(0);
    in_.a = Source(1, in_.from);
    if (operands_.size() == 3) in_.b = Source(2, in_.from);
    if (pair != (operands_.size() == 3) && in_.from == Type::kF32) Fail("operands do not fit");
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
  void Cvta() {
    in_.op = Op::kCvta;
    in_.mode = Has("to");
    in_.space = TakeSpace();
    in_.type = TakeType();
    if (!Count(2, 2)) return;
    in_.d = Dest(0);
    in_.a = Source(1, in_.type);
  }
  void Isspacep() {
    in_.op = Op::kIsspacep;
    in_.space = TakeSpace();
    if (!Count(2, 2)) return;
    in_.d = Dest(0);
    in_.a = Source(1, Type::kU64);
  }

  // ---- control

  void Bra() {
    in_.op = Op::kBra;
    Has("uni");
    if (!Count(1, 1)) return;
    if (operands_[0].kind != Operand::kLabel) return Fail("the target is no label");
    builder_->branches.push_back(
        {function_->code.size(), operands_[0].name, builder_->scope, line_});
  }
  void Leave() {
    in_.op = parts_[0] == "ret" ? Op::kRet : Op::kExit;
    Has("uni");
    Count(0, 0);
  }
  void Trap() { in_.op = Op::kTrap; }
  void Nanosleep() {
    in_.op = Op::kNop;
    TakeType();
  }
  void Griddep() {
    in_.op = Op::kGriddep;
    in_.mode = static_cast<uint8_t>(TakeOneOf({"launch_dependents", "wait"}));
  }
  void Setmaxnreg() {
    in_.op = Op::kSetmaxnreg;
    in_.mode = static_cast<uint8_t>(TakeOneOf({"inc", "dec"}));
    Need("sync");
    in_.aligned = Has("aligned");
    TakeType();
    in_.offset = Number(0);
  }

  // ---- memory

  void TakeOrder() {
    if (Has("weak")) in_.order = Order::kWeak;
    if (Has("volatile")) in_.order = Order::kVolatile;
    if (Has("relaxed")) in_.order = Order::kRelaxed;
    if (Has("acquire")) in_.order = Order::kAcquire;
    if (Has("release")) in_.order = Order::kRelease;
    if (Has("acq_rel")) in_.order = Order::kAcqRel;
    Optional({"cta", "cluster", "gpu", "sys"});
  }
  void TakeCacheHints() {
    Optional({"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_normal",
              "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
              "L2::64B", "L2::128B", "L2::256B"});
  }
  void TakeVector() {
    if (Has("v2")) in_.vector = 2;
    if (Has("v4")) in_.vector = 4;
  }
  void Load() {
    in_.op = Op::kLd;
    TakeOrder();
    in_.space = TakeSpace();
    TakeCacheHints();
    TakeVector();
    in_.type = TakeType();
    if (!Count(2, 2)) return;
    StartList();
    if (PushList(0, in_.type, true) != in_.vector) return Fail("the vector has another length");
    AddressOf(1, &in_.a, &in_.offset);
    if (operands_[1].param) in_.space = Space::kParam;
  }
  void Store() {
    in_.op = Op::kSt;
    if (Has("async")) return Fail("unknown instruction 'st.async'");
    TakeOrder();
    in_.space = TakeSpace();
    TakeCacheHints();
    TakeVector();
    in_.type = TakeType();
    if (!Count(2, 2)) return;
    AddressOf(0, &in_.a, &in_.offset);
    StartList();
    if (PushList(1, in_.type, false) != in_.vector) Fail("the vector has another length");
  }
  void Atom() {
    const bool returns = parts_[0] == "atom";
    in_.op = returns ? Op::kAtom : Op::kRed;
    if (Has("async")) return Fail("unknown instruction 'red.async'");
    in_.order = Order::kRelaxed;
    TakeOrder();
    in_.space = TakeSpace();
    int atomic = -1;
    for (size_t i = 0; i < std::size(kAtomics) && atomic < 0; ++i)
      if (Has(kAtomics[i])) atomic = static_cast<int>(i);
    if (atomic < 0) return Fail("unknown operation");
    in_.mode = static_cast<uint8_t>(atomic);
    Has("noftz");
    TakeVector();
    in_.type = TakeType();
    const size_t first = returns ? 1 : 0;
    if (!Count(first + 2, first + 3)) return;
    AddressOf(first, &in_.a, &in_.offset);
    if (in_.vector > 1) {
      StartList();
      if (PushList(first + 1, in_.type, false) != in_.vector) return Fail("the vector has another length");
      if (returns) PushList(0, in_.type, true);
      return;
    }
    if (returns) in_.d = Dest(0);
    in_.b = Source(first + 1, in_.type);
    if (operands_.size() == first + 3) in_.c = Source(first + 2, in_.type);
    if ((in_.c >= 0) != (in_.mode == static_cast<uint8_t>(Atomic::kCas))) Fail("operands do not fit");
  }
  void Fence() {
    in_.op = Op::kFence;
    if (parts_[0] == "membar") {
      if (TakeOneOf({"cta", "gl", "sys"}) < 0) Fail("a level is missing");
      return;
    }
    if (Has("proxy")) {
      in_.op = Op::kProxyFence;
      Need("async");
      Optional({"global", "shared::cta", "shared::cluster"});
      return;
    }
    if (Has("mbarrier_init")) {
      in_.op = Op::kProxyFence;
      in_.mode = 1;
      Need("release");
      Need("cluster");
      return;
    }
    if (TakeOneOf({"acq_rel", "sc", "acquire", "release"}) < 0) Fail("an order is missing");
    if (TakeOneOf({"cta", "cluster", "gpu", "sys"}) < 0) Fail("a scope is missing");
  }
  void Prefetch() {
    in_.op = Op::kPrefetch;
    TakeSpace();
    Optional({"L1", "L2", "tensormap", "L2::evict_last", "L2::evict_normal"});
    AddressOf(0, &in_.a, &in_.offset);
  }

  // ---- lanes and threads

  void Shfl() {
    in_.op = Op::kShfl;
    Need("sync");
    const int mode = TakeOneOf({"up", "down", "bfly", "idx"});
    if (mode < 0) return Fail("a mode is missing");
    in_.mode = static_cast<uint8_t>(mode);
    in_.type = TakeType();
    if (!Count(5, 5)) return;
    in_.d = Dest(0);
    if (!operands_[0].second.empty()) in_.d2 = Target(operands_[0].second[0]);
    in_.a = Source(1, in_.type);
    in_.b = Source(2, Type::kU32);
    in_.c = Source(3, Type::kU32);
    in_.e = Source(4, Type::kU32);
  }
  void Vote() {
    in_.op = Op::kVote;
    Need("sync");
    const int mode = TakeOneOf({"all", "any", "uni", "ballot"});
    if (mode < 0) return Fail("a mode is missing");
    in_.mode = static_cast<uint8_t>(mode);
    in_.type = TakeType();
    if (!Count(3, 3)) return;
    in_.d = Dest(0);
    in_.a = Source(1, Type::kPred);
    in_.e = Source(2, Type::kU32);
  }
  void Match() {
    in_.op = Op::kMatch;
    Need("sync");
    in_.mode = static_cast<uint8_t>(std::max(0, TakeOneOf({"any", "all"})));
    in_.type = TakeType();
    if (!Count(3, 3)) return;
    in_.d = Dest(0);
    if (!operands_[0].second.empty()) in_.d2 = Target(operands_[0].second[0]);
    in_.a = Source(1, in_.type);
    in_.e = Source(2, Type::kU32);
  }
  void Redux() {
    in_.op = Op::kRedux;
    Need("sync");
    const int mode = TakeOneOf({"add", "min", "max", "and", "or", "xor"});
    if (mode < 0) return Fail("an operation is missing");
    in_.mode = static_cast<uint8_t>(mode);
    in_.type = TakeType();
    if (!Count(3, 3)) return;
    in_.d = Dest(0);
    in_.a = Source(1, in_.type);
    in_.e = Source(2, Type::kU32);
  }
  void Activemask() {
    in_.op = Op::kActivemask;
    TakeType();
    in_.d = Dest(0);
  }
  void Elect() {
    in_.op = Op::kElect;
    Need("sync");
    if (!Count(2, 2)) return;
    in_.d = Dest(0);
    if (!operands_[0].second.empty()) in_.d2 = Target(operands_[0].second[0]);
    in_.e = Source(1, Type::kU32);
  }
  void Bar() {
    if (Has("cluster")) {
      const int mode = TakeOneOf({"arrive", "wait"});
      if (mode < 0) return Fail("unknown instruction");
      in_.op = mode == 0 ? Op::kClusterArrive : Op::kClusterWait;
      in_.order = Has("relaxed") ? Order::kRelaxed : Order::kAcqRel;
      Optional({"acquire", "release"});
      in_.aligned = Has("aligned");
      return;
    }
    if (Has("warp")) {
      in_.op = Op::kWarpSync;
      Need("sync");
      in_.e = Source(0, Type::kU32);
      return;
    }
    Has("cta");
    in_.aligned = parts_[0] == "bar" || Has("aligned");
    if (Has("red")) {
      in_.op = Op::kBarRed;
      in_.mode = static_cast<uint8_t>(TakeOneOf({"popc", "and", "or"}));
      in_.type = TakeType();
      if (!Count(3, 4)) return;
      in_.d = Dest(0);
      in_.a = Source(1, Type::kU32);
      if (operands_.size() == 4) in_.b = Source(2, Type::kU32);
      in_.c = Source(operands_.size() - 1, Type::kPred);
      return;
    }
    const int mode = TakeOneOf({"sync", "arrive"});
    if (mode < 0) return Fail("unknown instruction");
    in_.op = mode == 0 ? Op::kBarSync : Op::kBarArrive;
    if (!Count(1, 2)) return;
    in_.a = Source(0, Type::kU32);
    if (operands_.size() == 2) in_.b = Source(1, Type::kU32);
    if (mode == 1 && in_.b < 0) Fail("the number of threads is missing");
  }
  void Mapa() {
    in_.op = Op::kMapa;
    in_.space = TakeSpace();
    in_.type = TakeType();
    if (!Count(3, 3)) return;
    in_.d = Dest(0);
    in_.a = Source(1, in_.type);
    in_.b = Source(2, Type::kU32);
  }
  void Getctarank() {
    in_.op = Op::kGetctarank;
    in_.space = TakeSpace();
    in_.type = TakeType();
    if (!Count(2, 2)) return;
    in_.d = Dest(0);
    in_.a = Source(1, in_.type);
  }

  // ---- asynchronous copies

  void Copy() {
    Need("async");
    if (Has("bulk")) return Bulk();
    if (Has("commit_group")) {
      in_.op = Op::kCpCommit;
    } else if (Has("wait_all")) {
      in_.op = Op::kCpWait;
      in_.offset = -1;
    } else if (Has("wait_group")) {
      in_.op = Op::kCpWait;
      in_.offset = Number(0);
    } else if (Has("mbarrier")) {
      Need("arrive");
      in_.op = Op::kCpMbarArrive;
      in_.mode = Has("noinc");
      TakeSpace();
      TakeType();
      AddressOf(0, &in_.a, &in_.offset);
    } else {
      in_.op = Op::kCpAsync;
      const bool cg = TakeOneOf({"ca", "cg"}) == 1;
      if (!Has("shared") && !Has("shared::cta")) return Fail("the target is not shared memory");
      Need("global");
      Optional({"L2::64B", "L2::128B", "L2::256B"});
      if (!Count(3, 4)) return;
      AddressOf(0, &in_.a, &in_.offset);
      in_.b = AddressRow(1);
      const int64_t bytes = Number(2);
      if (bytes != 16 && (cg || (bytes != 4 && bytes != 8))) return Fail("unknown size");
      in_.mode = static_cast<uint8_t>(bytes);
      if (operands_.size() == 4) in_.c = Source(3, Type::kU32);
    }
  }
  void Bulk() {
    if (Has("commit_group")) {
      in_.op = Op::kBulkCommit;
      return;
    }
    if (Has("wait_group")) {
      in_.op = Op::kBulkWait;
      if (Has("read")) in_.flags |= kFlagRead;
      in_.offset = Number(0);
      return;
    }
    const bool prefetch = Has("prefetch");
    const bool tensor = Has("tensor");
    int dimensions = 0;
    if (tensor) dimensions = 1 + TakeOneOf({"1d", "2d", "3d", "4d", "5d"});
    if (tensor && dimensions == 0) return Fail("the number of dimensions is missing");
    in_.mode = static_cast<uint8_t>(dimensions);
    Has("tile");
    if (prefetch) {
      in_.op = Op::kTensorPrefetch;
      Optional({"L2", "global"});
      return;
    }
    // The first space is the target.
    bool load = false;
    for (const std::string_view part : parts_) {
      if (part == "global") break;
      if (part == "shared::cluster" || part == "shared::cta") load = true;
    }
    Need("global");
    if (!Has("shared::cluster")) Need("shared::cta");
    const bool hint = Has("L2::cache_hint");
    if (load) {
      Need("mbarrier::complete_tx::bytes");
      if (Has("multicast::cluster")) in_.flags |= kFlagMulticast;
    } else {
      Need("bulk_group");
    }
    const bool multicast = (in_.flags & kFlagMulticast) != 0;
    if (tensor) {
      in_.op = load ? Op::kTensorLoad : Op::kTensorStore;
      const size_t map = load ? 1 : 0;
      if (!Count((load ? 3 : 2) + multicast + hint, (load ? 3 : 2) + multicast + hint)) return;
      if (operands_[map].kind != Operand::kAddress) return Fail("the tensor map is no address");
      in_.b = operands_[map].row;
      if (in_.b < 0) in_.b = builder_->Constant(operands_[map].offset);
      if (static_cast<int>(operands_[map].list.size()) != dimensions)
        return Fail("the number of coordinates does not fit");
      if (load) in_.c = AddressRow(2);
      if (multicast) in_.e = Source(3, Type::kU16);
      AddressOf(load ? 0 : 1, &in_.a, &in_.offset);
      StartList();
      for (const Operand& coordinate : operands_[map].list) Push(Row(coordinate, Type::kS32));
      return;
    }
    in_.op = load ? Op::kBulkLoad : Op::kBulkStore;
    if (!Count((load ? 4 : 3) + multicast + hint, (load ? 4 : 3) + multicast + hint)) return;
    AddressOf(0, &in_.a, &in_.offset);
    in_.b = AddressRow(1);
    in_.d2 = Source(2, Type::kU32);
    if (load) in_.c = AddressRow(3);
    if (multicast) in_.e = Source(4, Type::kU16);
  }

  void Mbarrier() {
    const bool expects = Has("expect_tx");
    Optional({"release", "acquire", "relaxed", "cta", "cluster"});
    in_.space = TakeSpace();
    if (Has("init")) {
      in_.op = Op::kMbarInit;
      AddressOf(0, &in_.a, &in_.offset);
      in_.b = Source(1, Type::kU32);
    } else if (Has("inval")) {
      in_.op = Op::kMbarInval;
      AddressOf(0, &in_.a, &in_.offset);
    } else if (Has("arrive")) {
      in_.op = Op::kMbarArrive;
      if (Has("noComplete")) in_.flags |= kFlagNoComplete;
      // The state may be left out where nobody reads it.
      const size_t first = !operands_.empty() && operands_[0].kind == Operand::kAddress ? 0 : 1;
      if (first == 1) in_.d = Dest(0);
      AddressOf(first, &in_.a, &in_.offset);
      if (expects) {
        in_.flags |= kFlagExpectTx;
        in_.c = Source(first + 1, Type::kU32);
      } else if (operands_.size() == first + 2) {
        in_.b = Source(first + 1, Type::kU32);
      }
    } else if (Has("test_wait") || Has("try_wait")) {
      in_.op = Op::kMbarWait;
      if (parts_[1] == "test_wait") in_.flags |= kFlagLateFalse;
      if (Has("parity")) in_.flags |= kFlagParity;
      if (!Count(3, 4)) return;
      in_.d = Dest(0);
      AddressOf(1, &in_.a, &in_.offset);
      in_.b = Source(2, Type::kU64);
    } else if (expects) {
      in_.op = Op::kMbarExpect;
      AddressOf(0, &in_.a, &in_.offset);
      in_.c = Source(1, Type::kU32);
    } else {
      return Fail("unknown instruction");
    }
    if (TakeType() != Type::kB64) Fail("an mbarrier is .b64");
  }

  // ---- matrices

  void Ldmatrix() {
    const bool load = parts_[0] == "ldmatrix";
    in_.op = load ? Op::kLdmatrix : Op::kStmatrix;
    Need("sync");
    Need("aligned");
    in_.aligned = true;
    Need("m8n8");
    const int log = TakeOneOf({"x1", "x2", "x4"});
    if (log < 0) return Fail("a number of matrices is missing");
    in_.mode = static_cast<uint8_t>(1 << log);
    in_.transposed = Has("trans");
    in_.space = TakeSpace();
    if (TakeType() != Type::kB16) return Fail("only .b16 is known");
    if (!Count(2, 2)) return;
    AddressOf(load ? 1 : 0, &in_.a, &in_.offset);
    StartList();
    if (PushList(load ? 0 : 1, Type::kB32, load) != in_.mode) Fail("the vector has another length");
  }

  bool TakeShape(MatrixShape* shape) {
    for (size_t i = 1; i < parts_.size(); ++i) {
      const std::string part(parts_[i]);
      if (used_[i] || part[0] != 'm' ||
          std::sscanf(part.c_str(), "m%dn%dk%d", &shape->m, &shape->n, &shape->k) != 3)
        continue;
      return used_[i] = true;
    }
    Fail("a shape is missing");
    return false;
  }
  static int Bits(Type type) { return type == Type::kTf32 ? 32 : 8 * BytesOf(type); }

  void Mma() {
    in_.op = Op::kMma;
    Need("sync");
    Need("aligned");
    in_.aligned = true;
    Need("row");
    Need("col");
    in_.sat = Has("satfinite");
    MatrixShape shape;
    if (!TakeShape(&shape)) return;
    shape.d = TakeType();
    shape.a = TakeType();
    shape.b = TakeType();
    shape.c = TakeType();
    if (!Count(4, 4)) return;
    StartList();
    shape.d_count = PushList(0, shape.d, true);
    shape.a_count = PushList(1, shape.a, false);
    shape.b_count = PushList(2, shape.b, false);
    shape.c_count = PushList(3, shape.c, false);
    const auto registers = [](int elements, Type type) {
      const int width = type == Type::kF64 ? 64 : 32;
      return elements * Bits(type) / 32 / width;
    };
    const bool known = (shape.m == 16 && shape.n == 8) ||
                       (shape.m == 8 && shape.n == 8 && shape.k == 4 && shape.a == Type::kF64);
    if (!known) return Fail("unknown shape");
    if (registers(shape.m * shape.n, shape.d) != shape.d_count ||
        registers(shape.m * shape.k, shape.a) != shape.a_count ||
        registers(shape.k * shape.n, shape.b) != shape.b_count ||
        registers(shape.m * shape.n, shape.c) != shape.c_count)
      return Fail("the numbers of registers do not fit the shape");
    in_.shape = static_cast<int32_t>(function_->shapes.size());
    function_->shapes.push_back(shape);
  }

  void Wgmma() {
    in_.aligned = true;
    if (Has("fence")) {
      in_.op = Op::kWgmmaFence;
    } else if (Has("commit_group")) {
      in_.op = Op::kWgmmaCommit;
    } else if (Has("wait_group")) {
      in_.op = Op::kWgmmaWait;
      in_.offset = Number(0);
    } else {
      Need("mma_async");
      WgmmaProduct();
    }
    Need("sync");
    Need("aligned");
  }
  void WgmmaProduct() {
    in_.op = Op::kWgmma;
    in_.sat = Has("satfinite");
    MatrixShape shape;
    if (!TakeShape(&shape)) return;
    shape.d = TakeType();
    shape.a = TakeType();
    shape.b = TakeType();
    shape.c = shape.d;
    const int bits = Bits(shape.a);
    if (shape.m != 64 || shape.n % 8 != 0 || shape.n < 8 || shape.n > 256 || shape.k * bits != 256)
      return Fail("unknown shape");
    if (!Count(4, 8)) return;
    StartList();
    shape.d_count = PushList(0, shape.d, true);
    if (shape.d_count != shape.n * 64 * Bits(shape.d) / 32 / 128)
      return Fail("the number of accumulators does not fit the shape");
    if (operands_[1].kind == Operand::kList) {
      shape.a_count = PushList(1, shape.a, false);
      if (shape.a_count != 4) return Fail("A has four registers");
    } else {
      in_.a = Source(1, Type::kB64);
    }
    in_.b = Source(2, Type::kB64);
    in_.c = Source(3, Type::kPred);
    size_t next = 4;
    const auto flag = [&](bool* value, int64_t when) {
      if (next >= operands_.size()) return Fail("an operand is missing");
      const int64_t number = Number(next++);
      *value = number == when;
    };
    const bool integers = shape.d == Type::kS32;
    if (!integers) {
      flag(&shape.negate_a, -1);
      flag(&shape.negate_b, -1);
    }
    if (bits == 16) {
      if (shape.a_count == 0) flag(&shape.transpose_a, 1);
      flag(&shape.transpose_b, 1);
    }
    if (next != operands_.size()) return Fail("too many operands");
    in_.shape = static_cast<int32_t>(function_->shapes.size());
    function_->shapes.push_back(shape);
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

struct NamedSpecial {
  const char* name;
  Special special;
};
constexpr NamedSpecial kSpecials[] = {
    {"%tid.x", Special::kTidX}, {"%tid.y", Special::kTidY}, {"%tid.z", Special::kTidZ},
    {"%ntid.x", Special::kNtidX}, {"%ntid.y", Special::kNtidY}, {"%ntid.z", Special::kNtidZ},
    {"%ctaid.x", Special::kCtaidX}, {"%ctaid.y", Special::kCtaidY}, {"%ctaid.z", Special::kCtaidZ},
    {"%nctaid.x", Special::kNctaidX}, {"%nctaid.y", Special::kNctaidY},
    {"%nctaid.z", Special::kNctaidZ}, {"%laneid", Special::kLaneid}, {"%warpid", Special::kWarpid},
    {"%nwarpid", Special::kNwarpid}, {"%smid", Special::kSmid}, {"%nsmid", Special::kNsmid},
    {"%gridid", Special::kGridid}, {"%lanemask_eq", Special::kLanemaskEq},
    {"%lanemask_le", Special::kLanemaskLe}, {"%lanemask_lt", Special::kLanemaskLt},
    {"%lanemask_ge", Special::kLanemaskGe}, {"%lanemask_gt", Special::kLanemaskGt},
    {"%clusterid.x", Special::kClusteridX}, {"%clusterid.y", Special::kClusteridY},
    {"%clusterid.z", Special::kClusteridZ}, {"%nclusterid.x", Special::kNclusteridX},
    {"%nclusterid.y", Special::kNclusteridY}, {"%nclusterid.z", Special::kNclusteridZ},
    {"%cluster_ctaid.x", Special::kClusterCtaidX}, {"%cluster_ctaid.y", Special::kClusterCtaidY},
    {"%cluster_ctaid.z", Special::kClusterCtaidZ}, {"%cluster_nctaid.x", Special::kClusterNctaidX},
    {"%cluster_nctaid.y", Special::kClusterNctaidY},
    {"%cluster_nctaid.z", Special::kClusterNctaidZ}, {"%cluster_ctarank", Special::kClusterCtarank},
    {"%cluster_nctarank", Special::kClusterNctarank},
    {"%dynamic_smem_size", Special::kDynamicShared}, {"%total_smem_size", Special::kTotalShared},
    {"%is_explicit_cluster", Special::kIsExplicitCluster}};

}  // namespace

int BytesOf(Type type) {
  switch (type) {
    case Type::kNone: return 0;
    case Type::kPred: case Type::kB8: case Type::kU8: case Type::kS8: case Type::kE4m3:
    case Type::kE5m2:
      return 1;
    case Type::kB16: case Type::kU16: case Type::kS16: case Type::kF16: case Type::kBf16:
    case Type::kE4m3x2: case Type::kE5m2x2:
      return 2;
    case Type::kB64: case Type::kU64: case Type::kS64: case Type::kF64: return 8;
    case Type::kB128: return 16;
    default: return 4;
  }
}
bool IsSigned(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}
bool IsFloat(Type type) { return type >= Type::kF16; }

Type TypeOf(std::string_view name) {
  for (const NamedType& type : kTypes)
    if (name == type.name) return type.type;
  return Type::kNone;
}

Special SpecialOf(std::string_view name, bool* found) {
  *found = true;
  for (const NamedSpecial& special : kSpecials)
    if (name == special.name) return special.special;
  *found = false;
  return Special::kTidX;
}

absl::Status FunctionBuilder::Decode(std::string_view mnemonic, std::vector<Operand> operands,
                                     int guard, bool guard_negated, int line) {
  return Decoder(this, mnemonic, std::move(operands), line).Run(guard, guard_negated);
}

}  // namespace outboard::ptx
