// What sums over rows beside products (compiler/kernel/row_sums.h) save in a step of GPT-2 124M on
// sm_90a, as schedules say, and which units compute its products:
// build/bin/row_sums_bench [layers]. Nothing is run. The third schedule of each type writes no
// temporary over another one (compiler/schedule/in_place.h). LARGEST=n lists the n kernels with the
// most bytes of buffers, equal ones together. ONLY=name makes that schedule alone and compiles
// nothing. In place of layers: "programs", the divided schedules of all golden programs.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/row_sums.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/program/online/plan.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

constexpr int kMultiprocessors = 132;  // of an H100
constexpr double kMegabyte = 1e6;

schedule::Schedule ScheduleOf(Graph& g, const UOp* sink, std::span<const int64_t> donated,
                              bool divides, schedule::OverwritePolicy overwrites) {
  const Target target = CudaTarget("sm_90a", kMultiprocessors);
  schedule::ScheduleOptions options{.overwrites = overwrites};
  options.computes_scores = [&](const UOp* kernel) {
    return program::ComputesScores(kernel, target);
  };
  if (divides)
    options.computes_sums = [&](const UOp* kernel) {
      return program::ComputesRowSums(kernel, target) ||
             program::ComputesSumsOfOnline(kernel, target);
    };
  return ValueOrDie(schedule::MakeSchedule(g, sink, target, donated, options));
}

// Whether the kernel multiplies matrices: some sum has more terms than each buffer has elements.
bool Multiplies(const UOp* ast) {
  for (const UOp* node : PostOrder(ast)) {
    if (node->op != Op::kReduceLoop || ReduceOf(node).op() != Op::kAdd) continue;
    double largest = 0;
    bool nested = false;
    for (const UOp* inside : PostOrder(node->src[0])) {
      nested |= inside->op == Op::kReduceLoop;
      if (inside->op == Op::kLoad)
        largest = std::max(largest, static_cast<double>(GlobalOfAccess(inside).elements()));
    }
    if (!nested && largest > 0 && schedule::TermsOf(node) > 4 * largest) return true;
  }
  return false;
}

struct Figures {
  int launches = 0;
  int stores = 0;  // of sums
  // Loads, in sums over rows, of what has as many elements as the sum has terms: of all such, and
  // of what a product stores.
  int reads = 0, of_products = 0;
  double read_bytes = 0, of_products_bytes = 0;
  double bytes = 0;  // of all buffers of all kernels
};

// A sum over rows: the range whose elements lie side by side is not summed over.
bool AddsRows(const UOp* sum, const UOp* load) {
  for (const auto& [term, stride] : LinearOf(load->src[0]->src[1]).terms)
    if (stride == 1) {
      const Sources ranges = ReduceOf(sum).ranges();
      return std::find(ranges.begin(), ranges.end(), term) == ranges.end();
    }
  return false;
}

Figures FiguresOf(const schedule::Schedule& schedule) {
  Figures figures;
  absl::flat_hash_map<int, bool> by_product;  // buffer -> whether a product stores it
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    figures.launches += kernel.together > 0;
    absl::flat_hash_map<int, bool> counted;
    for (const UOp* node : PostOrder(kernel.ast)) {
      if (node->op != Op::kReduceLoop || ReduceOf(node).op() != Op::kAdd) continue;
      const double terms = schedule::TermsOf(node);
      for (const UOp* load : PostOrder(node->src[0])) {
        if (load->op != Op::kLoad) continue;
        const GlobalOf global = GlobalOfAccess(load);
        const int buffer = kernel.buffers[global.slot()];
        if (static_cast<double>(global.elements()) != terms || terms < 1 << 16 ||
            !AddsRows(node, load) || counted[buffer])
          continue;
        counted[buffer] = true;
        const double bytes = static_cast<double>(global.elements() * ByteWidth(load->dtype));
        ++figures.reads;
        figures.read_bytes += bytes;
        figures.of_products += by_product[buffer];
        figures.of_products_bytes += by_product[buffer] ? bytes : 0;
      }
    }
    const bool multiplies = Multiplies(kernel.ast);
    for (size_t slot = 0; slot < kernel.buffers.size(); ++slot) {
      const int buffer = kernel.buffers[slot];
      figures.bytes += static_cast<double>(schedule.buffers[buffer].bytes());
      if (slot < kernel.ast->src.size()) by_product[buffer] = multiplies;
    }
    for (const UOp* store : kernel.ast->src) figures.stores += SumsPoints(store);
  }
  return figures;
}

const char* WayOf(const CompiledKernel& compiled) {
  if (absl::StrContains(compiled.object, "wgmma.mma_async")) return "WGMMA";
  return absl::StrContains(compiled.object, "mma.sync") ? "MMA" : "plain";
}

// Kernels by the bytes of their buffers, equal ones together.
void PrintLargest(const schedule::Schedule& schedule, size_t most) {
  struct Equal {
    size_t first = 0;
    int count = 0;
    double read = 0, written = 0;
  };
  absl::flat_hash_map<const UOp*, Equal> equal;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    const schedule::ScheduledKernel& kernel = schedule.kernels[k];
    Equal& mine = equal.try_emplace(kernel.ast, Equal{.first = k}).first->second;
    ++mine.count;
    absl::flat_hash_set<int> seen;
    for (size_t slot = 0; slot < kernel.buffers.size(); ++slot) {
      if (!seen.insert(kernel.buffers[slot]).second) continue;
      const auto bytes = static_cast<double>(schedule.buffers[kernel.buffers[slot]].bytes());
      (slot < kernel.ast->src.size() ? mine.written : mine.read) += bytes;
    }
  }
  std::vector<Equal> order;
  for (const auto& [ast, mine] : equal) order.push_back(mine);
  std::sort(order.begin(), order.end(), [](const Equal& a, const Equal& b) {
    return std::pair(a.read + a.written, b.first) > std::pair(b.read + b.written, a.first);
  });
  for (size_t i = 0; i < std::min(most, order.size()); ++i)
    std::printf("  %2d times: %.1f MB read, %.1f written: %s\n", order[i].count,
                order[i].read / kMegabyte, order[i].written / kMegabyte,
                schedule::KernelToString(schedule, order[i].first).c_str());
}

void Print(const char* name, const schedule::Schedule& schedule) {
  const Figures f = FiguresOf(schedule);
  std::printf(
      "%-28s kernels %zu launches %d | sums over rows read %d arrays, %.1f MB; of them products' "
      "%d, %.1f MB | stores of sums %d | all kernels %.1f MB, arena %.1f MB\n",
      name, schedule.kernels.size(), f.launches, f.reads, f.read_bytes / kMegabyte, f.of_products,
      f.of_products_bytes / kMegabyte, f.stores, f.bytes / kMegabyte,
      static_cast<double>(schedule.arena_bytes) / kMegabyte);
  if (std::getenv("SHOW") != nullptr) std::puts(ScheduleToString(schedule).c_str());
  if (const char* const most = std::getenv("LARGEST"))
    PrintLargest(schedule, static_cast<size_t>(std::atoi(most)));
}

// How much of the products is computed by which units.
void PrintUnits(const schedule::Schedule& schedule) {
  Compiler compiler({.target = CudaTarget("sm_90a", kMultiprocessors)});
  absl::flat_hash_map<const UOp*, std::pair<const char*, double>> known;
  absl::flat_hash_map<std::string, double> flops;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) {
    if (!Multiplies(kernel.ast)) continue;
    const auto [entry, is_new] = known.try_emplace(kernel.ast);
    if (is_new) {
      const CompiledKernel compiled = ValueOrDie(compiler.Compile(kernel.ast));
      entry->second = {WayOf(compiled), static_cast<double>(compiled.flops)};
    }
    flops[entry->second.first] += entry->second.second;
  }
  std::printf("  products, GFLOP:");
  for (const char* const way : {"WGMMA", "MMA", "plain"})
    std::printf(" %s %.1f", way, flops[way] / 1e9);
  std::puts("");
}

// What the assembler says of the kernels with such stores, each once; with ALL of all that
// multiply.
void PrintAssembled(const schedule::Schedule& schedule) {
  const std::string ptxas = FindPtxas();
  if (ptxas.empty()) {
    std::puts("no ptxas: nothing is assembled");
    return;
  }
  const bool all = std::getenv("ALL") != nullptr;
  Compiler compiler({.target = CudaTarget("sm_90a", kMultiprocessors)});
  absl::flat_hash_set<const UOp*> compiled_asts;
  absl::flat_hash_set<std::string> known;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    const UOp* const ast = schedule.kernels[k].ast;
    if (!codegen::HasRowSums(ast) && !(all && Multiplies(ast))) continue;
    if (!compiled_asts.insert(ast).second) continue;
    const CompiledKernel compiled = ValueOrDie(compiler.Compile(ast));
    if (!known.insert(compiled.object).second) continue;
    const Assembled assembled = ValueOrDie(AssembleKernel(ptxas, compiled.object, "sm_90a"));
    std::printf("  %s: %s, %lld registers, %lld bytes spilled, %lld of stack\n",
                schedule::KernelToString(schedule, k).c_str(), WayOf(compiled),
                static_cast<long long>(assembled.registers),
                static_cast<long long>(assembled.spill_bytes),
                static_cast<long long>(assembled.stack_bytes));
  }
}

void PrintPrograms() {
  for (const Program& program : Programs()) {
    Graph recorded, g;
    std::vector<int64_t> donated;
    const UOp* const sink = RecordProgram(recorded, program, Size::kReal, &donated);
    Print(program.name.c_str(),
          ScheduleOf(g, sink, donated, true, schedule::OverwritePolicy::kLarge));
  }
}

}  // namespace
}  // namespace outboard::test

int main(int argc, char** argv) {
  using namespace outboard;
  if (argc > 1 && std::string(argv[1]) == "programs") {
    test::PrintPrograms();
    return 0;
  }
  const int64_t layers = argc > 1 ? std::atoi(argv[1]) : 12;
  for (const DType products : {DType::kF32, DType::kBF16}) {
    std::printf("%s\n", std::string(Name(products)).c_str());
    const struct {
      const char* name;
      bool divides;
      schedule::OverwritePolicy overwrites;
    } ways[] = {{"whole", false, schedule::OverwritePolicy::kLarge},
                {"divided", true, schedule::OverwritePolicy::kLarge},
                {"apart", true, schedule::OverwritePolicy::kNever}};
    const char* const only = std::getenv("ONLY");
    for (const auto& way : ways) {
      if (only != nullptr && std::string(way.name) != only) continue;
      Graph recorded, g;
      std::vector<int64_t> donated;
      const UOp* const sink = test::RecordProgram(
          recorded, test::Gpt2Step("gpt2_step", products, layers), test::Size::kReal, &donated);
      const schedule::Schedule schedule =
          test::ScheduleOf(g, sink, donated, way.divides, way.overwrites);
      test::Print(way.name, schedule);
      if (only != nullptr) continue;
      test::PrintUnits(schedule);
      std::fflush(stdout);
      if (way.overwrites != schedule::OverwritePolicy::kNever) test::PrintAssembled(schedule);
    }
  }
  return 0;
}
