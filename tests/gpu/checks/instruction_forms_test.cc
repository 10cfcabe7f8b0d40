// The forms of instructions: that none is missing, that the machine runs each without a report, and
// that a difference is seen.
#include "tests/gpu/checks/instruction_forms.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "tests/gpu/checks/bench.h"

namespace outboard::ptx {
namespace {

// What the machine leaves of `inputs`.
std::string ResultOf(const InstructionForm& form, std::vector<std::string> inputs) {
  MachineOptions options;
  options.warp_instructions_max = 1'000'000;
  Bench bench(FormHeader() + FormKernel(form, "k"), options);
  if (bench.module == nullptr) return "";
  std::vector<uint64_t> addresses;
  for (const std::string& bytes : inputs) {
    addresses.push_back(bench.memory.Allocate(bytes.size()));
    bench.memory.Write(addresses.back(), bytes.data(), bytes.size());
    bench.Argument(addresses.back());
  }
  const absl::Status status = bench.Launch(kFormBlocks, kFormBlockThreads);
  EXPECT_TRUE(status.ok()) << form.text << "\n" << status;
  EXPECT_EQ(bench.Kinds(), "") << form.text;
  EXPECT_TRUE(bench.memory.Read(addresses[0], inputs[0].data(), inputs[0].size()));
  return inputs[0];
}

TEST(InstructionForms, EveryInstructionHasOne_OrAReason) {
  std::set<Op> known;
  for (const InstructionForm& form : InstructionForms()) {
    const auto module = Parse(FormHeader() + FormKernel(form, "k"));
    ASSERT_TRUE(module.ok()) << form.text << "\n" << module.status();
    for (const Instruction& instruction : (*module)->functions.at("k")->code)
      known.insert(instruction.op);
  }
  std::set<Op> without;
  for (const WithoutForm& one : InstructionsWithoutForm()) {
    EXPECT_FALSE(known.contains(one.op)) << static_cast<int>(one.op) << " has a form";
    without.insert(one.op);
  }
  for (int op = 0; op <= static_cast<int>(kOpLast); ++op)
    EXPECT_TRUE(known.contains(static_cast<Op>(op)) || without.contains(static_cast<Op>(op)))
        << "ptx::Op " << op << " has neither a form nor a reason";
}

TEST(InstructionForms, TheMachineRunsEach) {
  for (const InstructionForm& form : InstructionForms()) {
    const std::vector<std::string> inputs = FormInputs(form, 1);
    const std::string result = ResultOf(form, inputs);
    ASSERT_NE(result, inputs[0]) << form.text << " leaves nothing";
    EXPECT_EQ(FormDifference(form, result, result), "");
  }
}

TEST(InstructionForms, ADifferenceIsSeen) {
  const auto difference = [](const InstructionForm& one, const std::string& text) {
    const InstructionForm other = {text, one.types, one.defined};
    const std::vector<std::string> inputs = FormInputs(one, 1);
    return FormDifference(one, ResultOf(one, inputs), ResultOf(other, inputs));
  };
  EXPECT_NE(difference({"add.u32 $d, $a, $b;", "rrr"}, "add.sat.s32 $d, $a, $b;"), "");
  EXPECT_NE(
      difference({"add.rn.f32 $d, $a, $b;", "fff", Defined::kNumber}, "add.rz.f32 $d, $a, $b;"),
      "");
  EXPECT_NE(difference({"max.f16 $d, $a, $b;", "hhh", Defined::kHalves}, "min.f16 $d, $a, $b;"),
            "");
  EXPECT_NE(difference({"ex2.approx.f32 $d, $a;", "fn", Defined::kRelative},
                       "ex2.approx.f32 $d, $a;\nmul.rn.f32 $d, $d, 0f3F800020;"),
            "");
  EXPECT_EQ(difference({"ex2.approx.f32 $d, $a;", "fn", Defined::kRelative},
                       "ex2.approx.f32 $d, $a;\nmul.rn.f32 $d, $d, 0f3F800002;"),
            "");
  // The bits of a NaN are nobody's.
  EXPECT_EQ(difference({"add.rn.f32 $d, $a, $b;", "fff", Defined::kNumber},
                       "add.rn.f32 $d, $a, $b;\ntestp.notanumber.f32 %p1, $d;\n"
                       "@%p1 mov.b32 $d, 0x7fc00001;"),
            "");
}

}  // namespace
}  // namespace outboard::ptx
