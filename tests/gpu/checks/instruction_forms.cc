#include "tests/gpu/checks/instruction_forms.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace outboard::ptx {
namespace {

using Forms = std::vector<InstructionForm>;

struct Integer {
  const char* type;
  char letter;  // of its register
  bool is_signed;
  int bits;
};
constexpr Integer kIntegers[] = {{"s16", 'h', true, 16}, {"u16", 'h', false, 16},
                                 {"s32", 'r', true, 32}, {"u32", 'r', false, 32},
                                 {"s64", 'd', true, 64}, {"u64", 'd', false, 64}};
constexpr const char* kRoundings[] = {"rn", "rz", "rm", "rp"};

std::string Of(int count, char letter) { return std::string(static_cast<size_t>(count), letter); }

// ---- integers

void Arithmetic(Forms& forms) {
  for (const Integer& i : kIntegers) {
    for (const char* const op : {"add", "sub", "mul.lo", "mul.hi", "min", "max"})
      forms.push_back({absl::StrCat(op, ".", i.type, " $d, $a, $b;"), Of(3, i.letter)});
    for (const char* const op : {"mad.lo", "mad.hi", "sad"})
      forms.push_back({absl::StrCat(op, ".", i.type, " $d, $a, $b, $c;"), Of(4, i.letter)});
    // A division by zero, and of the least number by -1, is not defined.
    const std::string positive =
        absl::StrCat(i.is_signed ? absl::StrCat("shr.u", i.bits, " $b, $b, 1;\n") : "", "or.b",
                     i.bits, " $b, $b, 1;\n");
    for (const char* const op : {"div", "rem"})
      forms.push_back({absl::StrCat(positive, op, ".", i.type, " $d, $a, $b;"), Of(3, i.letter)});
    if (i.is_signed)
      for (const char* const op : {"abs", "neg"})
        forms.push_back({absl::StrCat(op, ".", i.type, " $d, $a;"), Of(2, i.letter)});
    if (i.bits == 64) continue;
    const char wide = i.bits == 16 ? 'r' : 'd';
    forms.push_back({absl::StrCat("mul.wide.", i.type, " $d, $a, $b;"),
                     absl::StrCat(Of(1, wide), Of(2, i.letter))});
    forms.push_back({absl::StrCat("mad.wide.", i.type, " $d, $a, $b, $c;"),
                     absl::StrCat(Of(1, wide), Of(2, i.letter), Of(1, wide))});
    if (i.bits == 16) continue;
    forms.push_back({absl::StrCat("mul24.lo.", i.type, " $d, $a, $b;"), "rrr"});
    forms.push_back({absl::StrCat("mul24.hi.", i.type, " $d, $a, $b;"), "rrr"});
    forms.push_back({absl::StrCat("mad24.lo.", i.type, " $d, $a, $b, $c;"), "rrrr"});
  }
  for (const char* const op : {"add", "sub"})
    forms.push_back({absl::StrCat(op, ".sat.s32 $d, $a, $b;"), "rrr"});
  for (const char* const x : {"u32", "s32"})
    for (const char* const y : {"u32", "s32"}) {
      forms.push_back({absl::StrCat("dp4a.", x, ".", y, " $d, $a, $b, $c;"), "rrrr"});
      for (const char* const half : {"lo", "hi"})
        forms.push_back({absl::StrCat("dp2a.", half, ".", x, ".", y, " $d, $a, $b, $c;"), "rrrr"});
    }
  forms.push_back({"add.cc.u32 %r50, $a, $b;\naddc.u32 $d, $c, $a;", "rrrr"});
  forms.push_back({"add.cc.u64 %d50, $a, $b;\naddc.u64 $d, $c, $a;", "dddd"});
  forms.push_back({"sub.cc.u32 %r50, $a, $b;\nsubc.u32 $d, $c, $a;", "rrrr"});
  forms.push_back({"sub.cc.u64 %d50, $a, $b;\nsubc.u64 $d, $c, $a;", "dddd"});
  forms.push_back({"mad.lo.cc.u32 %r50, $a, $b, $c;\nmadc.hi.u32 $d, $a, $b, $c;", "rrrr"});
}

void BitsAndShifts(Forms& forms) {
  for (const auto& [type, letter] :
       {std::pair("b16", 'h'), std::pair("b32", 'r'), std::pair("b64", 'd')}) {
    for (const char* const op : {"and", "or", "xor"})
      forms.push_back({absl::StrCat(op, ".", type, " $d, $a, $b;"), Of(3, letter)});
    for (const char* const op : {"not", "cnot"})
      forms.push_back({absl::StrCat(op, ".", type, " $d, $a;"), Of(2, letter)});
    forms.push_back({absl::StrCat("shl.", type, " $d, $a, $b;"), absl::StrCat(Of(2, letter), "r")});
    if (letter == 'h') continue;
    for (const char* const op : {"popc", "clz"})
      forms.push_back({absl::StrCat(op, ".", type, " $d, $a;"), absl::StrCat("r", Of(1, letter))});
    forms.push_back({absl::StrCat("brev.", type, " $d, $a;"), Of(2, letter)});
    forms.push_back(
        {absl::StrCat("bfi.", type, " $d, $a, $b, $c, 5;"), absl::StrCat(Of(3, letter), "r")});
  }
  for (const Integer& i : kIntegers) {
    forms.push_back(
        {absl::StrCat("shr.", i.type, " $d, $a, $b;"), absl::StrCat(Of(2, i.letter), "r")});
    if (i.bits == 16) continue;
    for (const char* const op : {"bfind", "bfind.shiftamt"})
      forms.push_back(
          {absl::StrCat(op, ".", i.type, " $d, $a;"), absl::StrCat("r", Of(1, i.letter))});
    forms.push_back(
        {absl::StrCat("bfe.", i.type, " $d, $a, $b, $c;"), absl::StrCat(Of(2, i.letter), "rr")});
  }
  for (const char* const mode : {"clamp", "wrap"}) {
    forms.push_back({absl::StrCat("bmsk.", mode, ".b32 $d, $a, $b;"), "rrr"});
    for (const char* const type : {"s32", "u32"})
      forms.push_back({absl::StrCat("szext.", mode, ".", type, " $d, $a, $b;"), "rrr"});
    for (const char* const way : {"l", "r"})
      forms.push_back({absl::StrCat("shf.", way, ".", mode, ".b32 $d, $a, $b, $c;"), "rrrr"});
  }
  for (const char* const table : {"0xe8", "0x96", "0x1b"})
    forms.push_back({absl::StrCat("lop3.b32 $d, $a, $b, $c, ", table, ";"), "rrrr"});
  for (const char* const mode : {"", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"})
    forms.push_back({absl::StrCat("prmt.b32", mode, " $d, $a, $b, $c;"), "rrrr"});
}

// ---- floats

void Floats(Forms& forms) {
  const auto number = [&](const std::string& text, const std::string& types) {
    forms.push_back({text, types, Defined::kNumber});
  };
  for (const auto& [type, letter] : {std::pair(".f32", 'f'), std::pair(".f64", 'g')}) {
    for (const char* const rounding : kRoundings) {
      for (const char* const op : {"add.", "sub.", "mul.", "div."})
        number(absl::StrCat(op, rounding, type, " $d, $a, $b;"), Of(3, letter));
      number(absl::StrCat("fma.", rounding, type, " $d, $a, $b, $c;"), Of(4, letter));
      for (const char* const op : {"sqrt.", "rcp."})
        number(absl::StrCat(op, rounding, type, " $d, $a;"), Of(2, letter));
    }
    for (const char* const op : {"min", "max", "copysign"})
      number(absl::StrCat(op, type, " $d, $a, $b;"), Of(3, letter));
    for (const char* const op : {"abs", "neg"})
      number(absl::StrCat(op, type, " $d, $a;"), Of(2, letter));
    for (const char* const what :
         {"finite", "infinite", "number", "notanumber", "normal", "subnormal"})
      forms.push_back({absl::StrCat("testp.", what, type, " %p1, $a;\nselp.u32 $d, 1, 0, %p1;"),
                       absl::StrCat("r", Of(1, letter))});
  }
  for (const char* const op : {"add.rn.ftz", "mul.rn.ftz", "div.rn.ftz", "add.rn.sat", "mul.rn.sat",
                               "min.ftz", "max.ftz", "min.NaN", "max.NaN"})
    number(absl::StrCat(op, ".f32 $d, $a, $b;"), "fff");
  for (const char* const op : {"fma.rn.ftz", "fma.rn.sat"})
    number(absl::StrCat(op, ".f32 $d, $a, $b, $c;"), "ffff");
  for (const char* const op : {"sqrt.rn.ftz", "rcp.rn.ftz", "abs.ftz", "neg.ftz"})
    number(absl::StrCat(op, ".f32 $d, $a;"), "ff");
  // Only bounds are defined.
  for (const char* const op : {"rcp", "sqrt", "rsqrt", "ex2"})
    forms.push_back({absl::StrCat(op, ".approx.f32 $d, $a;"), "fn", Defined::kRelative});
  for (const char* const op : {"rcp", "ex2"})
    forms.push_back({absl::StrCat(op, ".approx.ftz.f32 $d, $a;"), "fn", Defined::kRelative});
  // With 20 digits, of which PTX promises none.
  forms.push_back({"cvt.f64.f32 %d20, $a;\nrcp.approx.ftz.f64 %d20, %d20;\n"
                   "cvt.rn.f32.f64 $d, %d20;",
                   "fn", Defined::kCoarse});
  for (const char* const op : {"sin", "cos", "lg2"})
    forms.push_back({absl::StrCat(op, ".approx.f32 $d, $a;"), "fn", Defined::kAbsolute});
  forms.push_back({"tanh.approx.f32 $d, $a;", "fn", Defined::kCoarse});
}

void SmallFloats(Forms& forms) {
  for (const auto& [type, defined] :
       {std::pair("f16", Defined::kHalves), std::pair("bf16", Defined::kBfloats)})
    for (const auto& [many, letter] : {std::pair("", 'h'), std::pair("x2", 'r')}) {
      for (const char* const op :
           {"add.rn.", "sub.rn.", "mul.rn.", "min.", "max.", "min.NaN.", "max.NaN."})
        forms.push_back({absl::StrCat(op, type, many, " $d, $a, $b;"), Of(3, letter), defined});
      for (const char* const op : {"fma.rn.", "fma.rn.relu."})
        forms.push_back({absl::StrCat(op, type, many, " $d, $a, $b, $c;"), Of(4, letter), defined});
      for (const char* const op : {"abs.", "neg."})
        forms.push_back({absl::StrCat(op, type, many, " $d, $a;"), Of(2, letter), defined});
    }
}

// ---- conversions

void Conversions(Forms& forms) {
  struct Kind {
    const char* type;
    char letter;
  };
  constexpr Kind kWhole[] = {{"u8", 'r'},  {"s8", 'r'},  {"u16", 'h'}, {"s16", 'h'},
                             {"u32", 'r'}, {"s32", 'r'}, {"u64", 'd'}, {"s64", 'd'}};
  constexpr Kind kFloats[] = {{"f32", 'f'}, {"f64", 'g'}, {"f16", 'h'}};
  const auto add = [&](const std::string& what, char to, char from, Defined defined) {
    forms.push_back({absl::StrCat("cvt.", what, " $d, $a;"), {to, from}, defined});
  };
  const auto defined = [](char letter) {
    return letter == 'h' ? Defined::kHalves : Defined::kNumber;
  };
  for (const Kind& from : kWhole) {
    for (const Kind& to : kWhole)
      add(absl::StrCat(to.type, ".", from.type), to.letter, from.letter, Defined::kBits);
    for (const Kind& to : kFloats)
      for (const char* const rounding : kRoundings)
        add(absl::StrCat(rounding, ".", to.type, ".", from.type), to.letter, from.letter,
            defined(to.letter));
  }
  for (const Kind& from : kFloats)
    for (const Kind& to : kWhole)
      for (const char* const rounding : {"rni", "rzi", "rmi", "rpi"})
        add(absl::StrCat(rounding, ".", to.type, ".", from.type), to.letter, from.letter,
            Defined::kBits);
  for (const char* const what : {"sat.u8.s32", "sat.s8.s32", "sat.u32.s32", "sat.s32.u32"})
    add(what, 'r', 'r', Defined::kBits);
  add("sat.s32.s64", 'r', 'd', Defined::kBits);
  add("sat.s32.u64", 'r', 'd', Defined::kBits);
  for (const char* const rounding : kRoundings)
    add(absl::StrCat(rounding, ".f32.f64"), 'f', 'g', Defined::kNumber);
  for (const char* const what : {"rni.f32.f32", "rzi.f32.f32", "rmi.f32.f32", "rpi.f32.f32",
                                 "sat.f32.f32", "ftz.sat.f32.f32"})
    add(what, 'f', 'f', Defined::kNumber);
  for (const char* const what : {"rni.f64.f64", "rzi.f64.f64", "rmi.f64.f64", "rpi.f64.f64"})
    add(what, 'g', 'g', Defined::kNumber);
  add("f64.f32", 'g', 'f', Defined::kNumber);
  add("f32.f16", 'f', 'h', Defined::kNumber);
  add("f32.bf16", 'f', 'h', Defined::kNumber);
  for (const char* const what : {"rn.f16.f32", "rz.f16.f32", "rn.relu.f16.f32"})
    add(what, 'h', 'f', Defined::kHalves);
  for (const char* const what : {"rn.bf16.f32", "rz.bf16.f32", "rn.relu.bf16.f32"})
    add(what, 'h', 'f', Defined::kBfloats);
  add("rn.f16.f64", 'h', 'g', Defined::kHalves);
  forms.push_back({"cvt.rna.tf32.f32 $d, $a;\nand.b32 $d, $d, 0xffffe000;", "rn"});
  const auto pair = [&](const std::string& what, const std::string& types, Defined of) {
    forms.push_back({absl::StrCat("cvt.", what, " $d, $a, $b;"), types, of});
  };
  for (const char* const modifiers : {"rn", "rz", "rn.relu"}) {
    pair(absl::StrCat(modifiers, ".f16x2.f32"), "rff", Defined::kHalves);
    pair(absl::StrCat(modifiers, ".bf16x2.f32"), "rff", Defined::kBfloats);
  }
  for (const char* const type : {"e4m3x2", "e5m2x2"}) {
    pair(absl::StrCat("rn.satfinite.", type, ".f32"), "hff", Defined::kBits);
    forms.push_back({absl::StrCat("cvt.rn.f16x2.", type, " $d, $a;"), "rh", Defined::kHalves});
    forms.push_back({absl::StrCat("cvt.rn.satfinite.", type, ".f16x2 $d, $a;"), "hr"});
  }
}

// ---- predicates and moves

void Predicates(Forms& forms) {
  const auto compare = [&](const std::string& what, char letter) {
    forms.push_back({absl::StrCat("setp.", what, " %p1, $a, $b;\nselp.u32 $d, 1, 0, %p1;"),
                     absl::StrCat("r", Of(2, letter))});
  };
  for (const Integer& i : kIntegers)
    for (const char* const op : {"eq", "ne", "lt", "le", "gt", "ge"})
      compare(absl::StrCat(op, ".", i.type), i.letter);
  for (const char* const op : {"lo", "ls", "hi", "hs"}) compare(absl::StrCat(op, ".u32"), 'r');
  for (const char* const op : {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu",
                               "gtu", "geu", "num", "nan"}) {
    compare(absl::StrCat(op, ".f32"), 'f');
    compare(absl::StrCat(op, ".f64"), 'g');
    compare(absl::StrCat(op, ".f16"), 'h');
  }
  for (const char* const logic : {"and", "or", "xor"})
    forms.push_back({absl::StrCat("setp.lt.u32 %p2, $c, 9;\nsetp.lt.", logic,
                                  ".s32 %p1|%p3, $a, $b, %p2;\nselp.u32 $d, 1, 0, %p1;\n",
                                  "@%p3 add.u32 $d, $d, 2;"),
                     "rrrr"});
  forms.push_back({"set.lt.u32.s32 $d, $a, $b;", "rrr"});
  forms.push_back({"set.gt.u32.f32 $d, $a, $b;", "rff"});
  forms.push_back({"set.eq.f32.f32 $d, $a, $b;", "fff"});
  forms.push_back({"slct.u32.s32 $d, $a, $b, $c;", "rrrr"});
  forms.push_back({"slct.u64.s32 $d, $a, $b, $c;", "dddr"});
  forms.push_back({"slct.f32.f32 $d, $a, $b, $c;", "ffff", Defined::kNumber});
  forms.push_back({"mov.b64 $d, {$a, $b};", "drr"});
  forms.push_back({"mov.b64 {%r50, $d}, $a;", "rd"});
  forms.push_back({"mov.b32 $d, {$a, $b};", "rhh"});
  forms.push_back({"mov.b32 {%h50, $d}, $a;", "hr"});
  for (const char* const special :
       {"%tid.x", "%ntid.x", "%ctaid.x", "%nctaid.x", "%laneid", "%tid.y", "%nctaid.z"})
    forms.push_back({absl::StrCat("mov.u32 $d, ", special, ";"), "r"});
}

// ---- memory

// %r21: the thread's own word of shared memory, which holds $a; all are written.
constexpr char kToShared[] =
    "shl.b32 %r20, %r92, 2;\nmov.u32 %r21, tiles;\nadd.u32 %r21, %r21, %r20;\n"
    "st.shared.u32 [%r21], $a;\nbar.sync 0;\n";

void Memory(Forms& forms) {
  const auto shared = [&](const std::string& text, const std::string& types) {
    forms.push_back({absl::StrCat(kToShared, text), types});
  };
  shared("xor.b32 %r21, %r21, 12;\nld.shared.u32 $d, [%r21];", "rr");
  shared(
      "and.b32 %r21, %r21, 0xfffffff0;\nld.shared.v4.u32 {%r30, %r31, %r32, %r33}, [%r21];\n"
      "xor.b32 %r30, %r30, %r31;\nadd.u32 %r30, %r30, %r32;\nxor.b32 $d, %r30, %r33;",
      "rr");
  shared(
      "and.b32 %r21, %r21, 0xfffffff8;\nbar.sync 0;\nand.b32 %r22, %r92, 1;\n"
      "setp.eq.u32 %p1, %r22, 0;\n@%p1 st.shared.v2.b32 [%r21], {$b, $a};\nbar.sync 0;\n"
      "ld.volatile.shared.u32 $d, [%r21];",
      "rrr");
  for (const char* const type : {"u8", "s8", "u16", "s16"})
    forms.push_back({absl::StrCat("ld.global.", type, " $d, [%d91];"), "rr"});
  forms.push_back({"ld.global.nc.u32 $d, [%d91];", "rr"});
  forms.push_back({"cvta.global.u64 %d50, %d91;\nld.u32 $d, [%d50];", "rr"});
  forms.push_back(
      {"cvta.global.u64 %d50, %d91;\ncvta.to.global.u64 %d51, %d50;\n"
       "prefetch.global.L2 [%d51];\nld.relaxed.gpu.global.u32 $d, [%d51];",
       "rr"});
  forms.push_back(
      {"cvta.global.u64 %d50, %d91;\ncvta.to.global.u64 %d51, %d50;\nand.b64 %d51, %d51, "
       "-16;\ncp.async.bulk.prefetch.L2.global [%d51], 16;\nld.relaxed.gpu.global.u32 $d, "
       "[%d91];",
       "rr"});
  for (const char* const space : {"global", "shared"})
    forms.push_back({absl::StrCat("cvta.global.u64 %d50, %d91;\nisspacep.", space,
                                  " %p1, %d50;\nselp.u32 $d, 1, 0, %p1;"),
                     "rr"});
  for (const char* const op : {"add.u32", "min.u32", "max.u32", "min.s32", "max.s32", "and.b32",
                               "or.b32", "xor.b32", "exch.b32", "inc.u32", "dec.u32"}) {
    shared(absl::StrCat("atom.shared.", op, " %r30, [%r21], $b;\nld.shared.u32 %r31, [%r21];\n",
                        "mad.lo.u32 $d, %r30, 31, %r31;"),
           "rrr");
    const std::string name(op);
    if (name != "exch.b32")
      forms.push_back(
          {absl::StrCat("red.global.", op, " [%d91], $b;\nld.global.u32 $d, [%d91];"), "rrr"});
  }
  shared(
      "atom.shared.cas.b32 %r30, [%r21], $b, $c;\nld.shared.u32 %r31, [%r21];\n"
      "mad.lo.u32 $d, %r30, 31, %r31;",
      "rrrr");
  forms.push_back({"atom.global.add.f32 %f30, [%d91], $b;\nld.global.f32 $d, [%d91];", "fff",
                   Defined::kNumber});
  forms.push_back({"atom.global.add.u64 %d30, [%d91], $b;\nld.global.u64 $d, [%d91];", "ddd"});
  // Halves of a block exchange words by fences and a flag that they wait for.
  for (const char* const fence : {"membar.cta", "membar.gl", "fence.acq_rel.cta", "fence.sc.gpu"})
    shared(
        absl::StrCat(fence, ";\nbar.sync 0;\nxor.b32 %r21, %r21, 128;\nld.shared.u32 $d, [%r21];"),
        "rr");
  // Copies beside the threads.
  const std::string own =
      "shl.b32 %r20, %r92, 2;\nmov.u32 %r21, tiles;\nadd.u32 %r21, %r21, %r20;\n";
  forms.push_back({absl::StrCat(own, "cp.async.ca.shared.global [%r21], [%d91], 4;\n",
                                "cp.async.commit_group;\ncp.async.wait_group 0;\nbar.sync 0;\n",
                                "xor.b32 %r21, %r21, 4;\nld.shared.u32 $d, [%r21];"),
                   "rr"});
  forms.push_back({absl::StrCat(own, "and.b32 %r22, %r92, 1;\nshl.b32 %r22, %r22, 2;\n",
                                "cp.async.ca.shared.global [%r21], [%d91], 4, %r22;\n",
                                "cp.async.wait_all;\nld.shared.u32 $d, [%r21];"),
                   "rr"});
}

// ---- lanes and threads

void Lanes(Forms& forms) {
  for (const char* const mode :
       {"bfly.b32 $d|%p1, $a, 5, 31, -1", "down.b32 $d|%p1, $a, 3, 31, -1",
        "up.b32 $d|%p1, $a, 3, 0, -1", "idx.b32 $d|%p1, $a, 7, 31, -1",
        "idx.b32 $d|%p1, $a, 2, 6175, -1", "down.b32 $d|%p1, $a, 3, 6175, -1"})
    forms.push_back({absl::StrCat("shfl.sync.", mode, ";\n@!%p1 xor.b32 $d, $d, 1;"), "rr"});
  const std::string odd = "and.b32 %r20, $a, 1;\nsetp.ne.u32 %p1, %r20, 0;\n";
  forms.push_back({absl::StrCat(odd, "vote.sync.ballot.b32 $d, %p1, -1;"), "rr"});
  for (const char* const mode : {"any", "all", "uni"})
    forms.push_back({absl::StrCat("setp.lt.u32 %p1, $a, 0xf0000000;\nvote.sync.", mode,
                                  ".pred %p2, %p1, -1;\nselp.u32 $d, 1, 0, %p2;"),
                     "rr"});
  const std::string few = "and.b32 %r20, $a, 3;\n";
  forms.push_back({absl::StrCat(few, "match.any.sync.b32 $d, %r20, -1;"), "rr"});
  forms.push_back(
      {absl::StrCat(few, "match.all.sync.b32 $d|%p1, %r20, -1;\n", "@%p1 add.u32 $d, $d, 1;"),
       "rr"});
  forms.push_back({"and.b64 %d50, $a, 3;\nmatch.any.sync.b64 $d, %d50, -1;", "rd"});
  for (const char* const what : {"add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32",
                                 "and.b32", "or.b32", "xor.b32"})
    forms.push_back({absl::StrCat("redux.sync.", what, " $d, $a, -1;"), "rr"});
  forms.push_back({absl::StrCat(odd, "mov.u32 $d, 0;\n@!%p1 bra DONE;\nactivemask.b32 $d;\n",
                                "popc.b32 $d, $d;\nmin.u32 $d, $d, 1;\nDONE:\nbar.warp.sync -1;"),
                   "rr"});
  forms.push_back({"elect.sync %r20|%p1, -1;\nselp.u32 $d, %r20, 77, %p1;", "r"});
  for (const char* const what :
       {"popc.u32 $d, 0, %p1", "or.pred %p2, 0, %p1", "and.pred %p2, 0, %p1"})
    forms.push_back({absl::StrCat(odd, "mov.pred %p2, %p1;\nmov.u32 $d, 0;\nbar.red.", what,
                                  ";\n@%p2 add.u32 $d, $d, 100;\nnanosleep.u32 20;"),
                     "rr"});
  // The first warp hands its words to the second.
  forms.push_back({absl::StrCat(kToShared, R"(mov.u32 $d, $b;
setp.lt.u32 %p1, %r92, 32;
@%p1 bra FIRST;
bar.sync 3, 64;
xor.b32 %r21, %r21, 128;
ld.shared.u32 $d, [%r21];
bra DONE;
FIRST:
st.shared.u32 [%r21], $b;
bar.arrive 3, 64;
DONE:
bar.sync 0;)"),
                   "rrr"});
  // Loops of as many steps as the lane's number says.
  forms.push_back({R"(and.b32 %r20, $a, 31;
mov.u32 $d, 0;
LOOP:
setp.eq.u32 %p1, %r20, 0;
@%p1 bra DONE;
mad.lo.u32 $d, $d, 3, $b;
sub.u32 %r20, %r20, 1;
bra LOOP;
DONE:
bar.sync 0;)",
                   "rrr"});
  forms.push_back({absl::StrCat(odd, "add.u32 $d, $a, 5;\n@%p1 st.global.u32 [%d90], $d;\n",
                                "@%p1 exit;\nsub.u32 $d, $a, 5;"),
                   "rr"});
  // A barrier in memory that all threads arrive at, and wait for.
  const std::string barrier =
      "mov.u32 %r40, tiles;\nadd.u32 %r40, %r40, 4096;\nsetp.eq.u32 %p1, %r92, 0;\n";
  const std::string wait =
      "WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r40], 0;\n@!%p2 bra WAIT;\n";
  forms.push_back({absl::StrCat(barrier, "@%p1 mbarrier.init.shared::cta.b64 [%r40], 64;\n",
                                kToShared, "mbarrier.arrive.shared::cta.b64 %d50, [%r40];\n", wait,
                                "xor.b32 %r21, %r21, 128;\nld.shared.u32 $d, [%r21];"),
                   "rr"});
  // The block's 64 words of a, copied by its first thread.
  forms.push_back(
      {absl::StrCat(barrier, "@%p1 mbarrier.init.shared::cta.b64 [%r40], 1;\n",
                    "@%p1 fence.proxy.async;\nbar.sync 0;\nmov.u32 %r41, tiles;\n",
                    "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %d50, [%r40], 256;\n",
                    "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes ",
                    "[%r41], [%d91], 256, [%r40];\n", wait,
                    "xor.b32 %r42, %r92, 5;\nshl.b32 %r42, %r42, 2;\nadd.u32 %r41, %r41, %r42;\n",
                    "ld.shared.u32 $d, [%r41];"),
       "rr"});
}

// ---- matrices

// Four bits of a word as f32, from bit `shift` on.
std::string Nibble(const std::string& to, const std::string& word, int shift) {
  return absl::StrCat("shr.u32 %r60, ", word, ", ", shift,
                      ";\nand.b32 %r60, %r60, 7;\ncvt.rn.f32.u32 ", to, ", %r60;\n");
}

// A product of whole numbers, whose sums no order of additions changes.
std::string ProductOf(const std::string& shape, int a_words, int b_words,
                      const std::string& convert) {
  std::string text;
  const auto fill = [&](const std::string& word, int first, int count) {
    for (int i = 0; i < count; ++i) {
      for (int k = 0; k < 4; ++k)
        absl::StrAppend(&text, Nibble(absl::StrCat("%f", 60 + k), word, (i * 4 + k * 5) % 29));
      absl::StrAppend(&text, absl::StrReplaceAll(convert, {{"$x", absl::StrCat("%r", first + i)}}),
                      "\n");
    }
  };
  fill("$a", 70, a_words);
  fill("$b", 80, b_words);
  for (int i = 0; i < 4; ++i)
    absl::StrAppend(&text, Nibble(absl::StrCat("%f", 90 + i), "$c", i * 7));
  const auto list = [](char letter, int first, int count) {
    std::string words = "{";
    for (int i = 0; i < count; ++i)
      absl::StrAppend(&words, i > 0 ? ", " : "", "%", std::string(1, letter), first + i);
    return words + "}";
  };
  absl::StrAppend(&text, "mma.sync.aligned.", shape, " ", list('f', 100, 4), ", ",
                  list('r', 70, a_words), ", ", list('r', 80, b_words), ", ", list('f', 90, 4),
                  ";\nmov.u32 $d, 0;\n");
  for (int i = 0; i < 4; ++i)
    absl::StrAppend(&text, "cvt.rzi.u32.f32 %r60, %f", 100 + i,
                    ";\nmad.lo.u32 $d, $d, 8191, %r60;\n");
  return text;
}

void Matrices(Forms& forms) {
  const auto product = [&](const std::string& shape, int a, int b, const std::string& convert) {
    forms.push_back({ProductOf(shape, a, b, convert), "rrrr"});
  };
  for (const char* const type : {"f16", "bf16"}) {
    const std::string pair = absl::StrCat("cvt.rn.", type, "x2.f32 $x, %f60, %f61;");
    const std::string types = absl::StrCat(".row.col.f32.", type, ".", type, ".f32");
    product(absl::StrCat("m16n8k16", types), 4, 2, pair);
    product(absl::StrCat("m16n8k8", types), 2, 1, pair);
  }
  product("m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2, "cvt.rna.tf32.f32 $x, %f60;");
  for (const char* const type : {"e4m3", "e5m2"}) {
    // 8-bit floats with two bits of mantissa hold no 5 and no 7.
    const std::string four =
        absl::StrCat("cvt.rn.satfinite.", type, "x2.f32 %h60, %f60, %f61;\ncvt.rn.satfinite.", type,
                     "x2.f32 %h61, %f62, %f63;\nmov.b32 $x, {%h60, %h61};");
    product(absl::StrCat("m16n8k32.row.col.f32.", type, ".", type, ".f32"), 4, 2, four);
  }
  // Of a warp's 32 words: eight rows of 16 bytes, which lanes 0 to 7 name.
  const std::string rows =
      "and.b32 %r22, %r92, 32;\nshl.b32 %r22, %r22, 2;\nand.b32 %r23, %r92, 7;\n"
      "shl.b32 %r23, %r23, 4;\nmov.u32 %r24, tiles;\nadd.u32 %r24, %r24, %r22;\n"
      "add.u32 %r24, %r24, %r23;\n";
  for (const char* const turned : {"", ".trans"})
    forms.push_back({absl::StrCat(kToShared, rows, "ldmatrix.sync.aligned.m8n8.x1", turned,
                                  ".shared.b16 {$d}, [%r24];"),
                     "rr"});
  for (const char* const turned : {"", ".trans"})
    forms.push_back(
        {absl::StrCat(kToShared, rows, "bar.sync 0;\n", "stmatrix.sync.aligned.m8n8.x1", turned,
                      ".shared.b16 [%r24], {$b};\nbar.sync 0;\nld.shared.u32 $d, [%r21];"),
         "rrr"});
}

}  // namespace

std::vector<InstructionForm> InstructionForms() {
  Forms forms;
  for (const auto family : {Arithmetic, BitsAndShifts, Floats, SmallFloats, Conversions, Predicates,
                            Memory, Lanes, Matrices})
    family(forms);
  return forms;
}

const std::vector<WithoutForm>& InstructionsWithoutForm() {
  constexpr char kProducts[] = "needs tensor maps: products by warpgroups have it";
  constexpr char kCluster[] = "needs a cluster: products by warpgroups have it";
  static const std::vector<WithoutForm> without = {
      {Op::kBrx, "the machine refuses it"},
      {Op::kCall, "the machine refuses it"},
      {Op::kFns, "the machine refuses it"},
      {Op::kTrap, "ends the context"},
      {Op::kClock, "differs by nature"},
      {Op::kMapa, kCluster},
      {Op::kGetctarank, kCluster},
      {Op::kClusterArrive, kCluster},
      {Op::kClusterWait, kCluster},
      {Op::kSetmaxnreg, kProducts},
      {Op::kGriddep, "needs launches that overlap: products by warpgroups in graphs have it"},
      {Op::kCpMbarArrive, "the compiler does not use it"},
      {Op::kMbarInval, "leaves nothing to see"},
      {Op::kMbarExpect, "products by warpgroups have it"},
      {Op::kBulkStore, kProducts},
      {Op::kTensorLoad, kProducts},
      {Op::kTensorStore, kProducts},
      {Op::kTensorPrefetch, kProducts},
      {Op::kBulkCommit, kProducts},
      {Op::kBulkWait, kProducts},
      {Op::kWgmma, kProducts},
      {Op::kWgmmaFence, kProducts},
      {Op::kWgmmaCommit, kProducts},
      {Op::kWgmmaWait, kProducts},
  };
  return without;
}

}  // namespace outboard::ptx
