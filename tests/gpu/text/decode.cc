// Mnemonics and operands to instructions. Each modifier is taken by name; one that is left over is
// an error.
#include "tests/gpu/text/decode_copies.h"

namespace outboard::ptx {
namespace {

struct Simple {
  const char* name;
  Op op;
  int sources;
};
// Instructions of the form: d, sources.
constexpr Simple kSimple[] = {
    {"add", Op::kAdd, 2},       {"sub", Op::kSub, 2},       {"mul", Op::kMul, 2},
    {"mad", Op::kMad, 3},       {"fma", Op::kFma, 3},       {"mul24", Op::kMul24, 2},
    {"mad24", Op::kMad24, 3},   {"sad", Op::kSad, 3},       {"div", Op::kDiv, 2},
    {"rem", Op::kRem, 2},       {"abs", Op::kAbs, 1},       {"neg", Op::kNeg, 1},
    {"min", Op::kMin, 2},       {"max", Op::kMax, 2},       {"popc", Op::kPopc, 1},
    {"clz", Op::kClz, 1},       {"bfind", Op::kBfind, 1},   {"brev", Op::kBrev, 1},
    {"bfe", Op::kBfe, 3},       {"bfi", Op::kBfi, 4},       {"bmsk", Op::kBmsk, 2},
    {"szext", Op::kSzext, 2},   {"dp4a", Op::kDp4a, 3},     {"dp2a", Op::kDp2a, 3},
    {"and", Op::kAnd, 2},       {"or", Op::kOr, 2},         {"xor", Op::kXor, 2},
    {"not", Op::kNot, 1},       {"cnot", Op::kCnot, 1},     {"shl", Op::kShl, 2},
    {"shr", Op::kShr, 2},       {"shf", Op::kShf, 3},       {"prmt", Op::kPrmt, 3},
    {"rcp", Op::kRcp, 1},       {"sqrt", Op::kSqrt, 1},     {"rsqrt", Op::kRsqrt, 1},
    {"sin", Op::kSin, 1},       {"cos", Op::kCos, 1},       {"lg2", Op::kLg2, 1},
    {"ex2", Op::kEx2, 1},       {"tanh", Op::kTanh, 1},     {"copysign", Op::kCopysign, 2},
    {"addc", Op::kAddCarry, 2}, {"subc", Op::kSubCarry, 2}, {"madc", Op::kMadCarry, 3},
    {"fns", Op::kFns, 3}};

constexpr const char* kCompares[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                     "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
constexpr const char* kAtomics[] = {"add", "min",  "max", "and", "or",
                                    "xor", "exch", "cas", "inc", "dec"};

class Decoder : public CopyDecoder {
 public:
  using CopyDecoder::CopyDecoder;

 private:
  // ---- families

  void Dispatch() {
    const std::string_view base = parts_[0];
    if ((base == "add" || base == "sub" || base == "mad") && Has("cc")) {
      in_.flags = kFlagCarryOut;
      return Plain(base == "add"   ? Op::kAddCarry
                   : base == "sub" ? Op::kSubCarry
                                   : Op::kMadCarry,
                   base == "mad" ? 3 : 2);
    }
    for (const Simple& simple : kSimple)
      if (base == simple.name) return Plain(simple.op, simple.sources);
    using Family = void (Decoder::*)();
    static const std::map<std::string_view, Family> families = {
        {"setp", &Decoder::Setp},
        {"set", &Decoder::Set},
        {"selp", &Decoder::Selp},
        {"slct", &Decoder::Slct},
        {"mov", &Decoder::Mov},
        {"cvt", &Decoder::Cvt},
        {"cvta", &Decoder::Cvta},
        {"isspacep", &Decoder::Isspacep},
        {"lop3", &Decoder::Lop3},
        {"testp", &Decoder::Testp},
        {"bra", &Decoder::Bra},
        {"ret", &Decoder::Leave},
        {"exit", &Decoder::Leave},
        {"trap", &Decoder::Trap},
        {"ld", &Decoder::Load},
        {"ldu", &Decoder::Load},
        {"st", &Decoder::Store},
        {"atom", &Decoder::Atom},
        {"red", &Decoder::Atom},
        {"membar", &Decoder::Fence},
        {"fence", &Decoder::Fence},
        {"shfl", &Decoder::Shfl},
        {"vote", &Decoder::Vote},
        {"match", &Decoder::Match},
        {"redux", &Decoder::Redux},
        {"activemask", &Decoder::Activemask},
        {"elect", &Decoder::Elect},
        {"bar", &Decoder::Bar},
        {"barrier", &Decoder::Bar},
        {"setmaxnreg", &Decoder::Setmaxnreg},
        {"griddepcontrol", &Decoder::Griddep},
        {"nanosleep", &Decoder::Nanosleep},
        {"mapa", &Decoder::Mapa},
        {"getctarank", &Decoder::Getctarank},
        {"cp", &Decoder::Copy},
        {"mbarrier", &Decoder::Mbarrier},
        {"prefetch", &Decoder::Prefetch},
        {"ldmatrix", &Decoder::Ldmatrix},
        {"stmatrix", &Decoder::Ldmatrix},
        {"mma", &Decoder::Mma},
        {"wgmma", &Decoder::Wgmma}};
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
      case Op::kMul:
      case Op::kMad:
      case Op::kMul24:
      case Op::kMad24:
      case Op::kMadCarry:
      case Op::kDp2a:
        in_.mode = static_cast<uint8_t>(std::max(0, TakeOneOf({"lo", "hi", "wide"})));
        break;
      case Op::kShf:
        in_.mode = static_cast<uint8_t>(std::max(0, TakeOneOf({"l", "r"})));
        in_.sat = Has("clamp");
        if (!in_.sat) Need("wrap");
        break;
      case Op::kPrmt:
        in_.mode = static_cast<uint8_t>(1 + TakeOneOf({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}));
        break;
      case Op::kBmsk:
      case Op::kSzext: in_.sat = TakeOneOf({"clamp", "wrap"}) == 0; break;
      case Op::kBfind: in_.mode = Has("shiftamt"); break;
      case Op::kMin:
      case Op::kMax: in_.nan = Has("NaN"); break;
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
    in_.mode = static_cast<uint8_t>(
        TakeOneOf({"finite", "infinite", "number", "notanumber", "normal", "subnormal"}));
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
    if (!operands_.empty() && operands_[0].kind == Operand::kNumber) in_.offset = Number(0);
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
      if (PushList(first + 1, in_.type, false) != in_.vector)
        return Fail("the vector has another length");
      if (returns) PushList(0, in_.type, true);
      return;
    }
    if (returns) in_.d = Dest(0);
    in_.b = Source(first + 1, in_.type);
    if (operands_.size() == first + 3) in_.c = Source(first + 2, in_.type);
    if ((in_.c >= 0) != (in_.mode == static_cast<uint8_t>(Atomic::kCas)))
      Fail("operands do not fit");
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
};

}  // namespace

absl::Status FunctionBuilder::Decode(std::string_view mnemonic, std::vector<Operand> operands,
                                     int guard, bool guard_negated, int line) {
  return Decoder(this, mnemonic, std::move(operands), line).Run(guard, guard_negated);
}

}  // namespace outboard::ptx
