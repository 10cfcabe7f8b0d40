#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/common.h"
#include "cli/estimate/commands.h"
#include "cli/estimate/estimate_table.h"
#include "cli/estimate/recorded_run.h"
#include "cli/estimate/scheduled_work.h"
#include "client/session/address.h"
#include "client/session/estimate/device_class.h"
#include "client/session/protection.h"
#include "compiler/target.h"
#include "gateway/prices/price_list.h"
#include "gateway/prices/rates_on_paper.h"
#include "worker/devices/device_rates.h"

namespace outboard::cli {

namespace {

struct EstimateFlags {
  std::vector<std::string> command;
  int64_t steps = 0;    // 0: to the program's end
  std::string gateway;  // empty: as the environment says
  std::string prices;   // a price file, instead of a gateway's classes
  bool measure = false;
  bool json = false;
};

using session::ClassEstimate;
using session::DeviceClass;

constexpr int kWrongUsage = 2;
constexpr int kInterruptedCode = 128 + 2;  // a program that SIGINT has ended
constexpr char kThisMachine[] = "this machine";

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where the classes come from: a file, a gateway, or this machine, where a program without CLOUD=1
// computes.
struct Source {
  std::string prices, target, key;
  session::Protection protection;
  std::string measured_on;  // the variable that sends a measured run there; empty: as it is
};

absl::StatusOr<Source> SourceOf(const EstimateFlags& flags) {
  Source source{.prices = flags.prices};
  if (flags.command.empty())
    return absl::InvalidArgumentError(
        "the program is missing: outboard estimate -- ./train --epochs 3");
  if (!flags.prices.empty() && !flags.gateway.empty())
    return absl::InvalidArgumentError("--prices and --gateway both say prices: give one");
  if (!flags.prices.empty() && flags.measure)
    return absl::InvalidArgumentError("--measure needs a device, and --prices has none");
  if (!flags.prices.empty()) return source;
  const bool cloud = Variable("CLOUD") == "1";
  if (flags.gateway.empty() && !cloud) return source;
  const std::string host = Variable("CLOUD_HOST");
  source.target = !flags.gateway.empty() ? flags.gateway
                  : !host.empty()        ? host
                                         : absl::StrCat("localhost:", session::kDefaultPort);
  source.key = Variable("CLOUD_KEY");
  if (!flags.gateway.empty()) source.measured_on = absl::StrCat("CLOUD_HOST=", flags.gateway);
  OB_RETURN_IF_ERROR(session::CheckTarget(flags.gateway.empty() ? "CLOUD_HOST" : "--gateway",
                                          source.target));
  OB_RETURN_IF_ERROR(session::CheckKeyText("CLOUD_KEY", source.key));
  OB_ASSIGN_OR_RETURN(source.protection, session::Protection::FromEnvironment());
  return source;
}

// A class, and the GPU that graphs are scheduled for; nothing: they are counted as they are.
struct PricedClass {
  DeviceClass of;
  std::optional<Target> target = std::nullopt;
};

absl::StatusOr<std::vector<PricedClass>> ClassesFrom(const Source& source) {
  if (!source.prices.empty()) {
    const auto prices = gateway::ReadPriceList(source.prices);
    if (!prices.ok())
      return absl::InvalidArgumentError(absl::StrCat("--prices: ", prices.status().message()));
    std::vector<PricedClass> classes;
    for (const gateway::PriceClass& of : prices->classes) {
      const gateway::StatedRates stated = gateway::StatedRatesOf(of);
      classes.push_back({{.name = of.name,
                          .gflops = stated.rates.gflops,
                          .memory_gb_per_s = stated.rates.memory_gb_per_s,
                          .memory_bytes = of.memory_bytes,
                          .run_per_hour_micro_usd = static_cast<uint64_t>(of.run.value),
                          .tf32_gflops = stated.tf32_gflops,
                          .half_gflops = stated.half_gflops,
                          .f8_gflops = stated.f8_gflops,
                          .rates_on_paper = stated.on_paper},
                         gateway::TargetOnPaper(of)});
    }
    return classes;
  }
  if (!source.target.empty()) {
    // A gateway tells no client what its classes are made of.
    OB_ASSIGN_OR_RETURN(const std::vector<DeviceClass> told,
                        session::ClassesOf(source.target, source.key, source.protection));
    std::vector<PricedClass> classes;
    for (const DeviceClass& of : told) classes.push_back({of});
    return classes;
  }
  // As a worker measures its devices for a gateway that asks.
  DeviceClass here{.name = kThisMachine};
  const auto rates = worker::MeasureDevice({"/proc/self/exe", "measure-device"}, {}, {});
  if (!rates.ok()) return rates.status();
  here.gflops = rates->gflops();
  here.memory_gb_per_s = rates->memory_gb_per_s();
  return std::vector<PricedClass>{{here}};
}

// What kept the program from saying all that it does; empty: nothing did.
std::string TroubleOf(const EstimateFlags& flags, const RecordedRun& run) {
  if (run.work.runs == 0)
    return absl::StrCat(flags.command[0], " computed nothing",
                        run.exit_code != 0 ? absl::StrCat("; it ended with ", run.exit_code) : "");
  if (!run.stopped && run.exit_code == kInterruptedCode)
    return absl::StrCat(flags.command[0], " was interrupted after ", run.work.steps,
                        " steps: the estimate is of those");
  if (!run.stopped && run.exit_code != 0)
    return absl::StrCat(flags.command[0], " ended with ", run.exit_code, " after ",
                        run.work.steps, " steps: the estimate is of those");
  if (flags.steps > 0 && !run.stopped)
    return absl::StrCat(flags.command[0], " ended by itself after ", run.work.steps,
                        " steps: the estimate is of those");
  return "";
}

absl::StatusOr<int> Estimate(const EstimateFlags& flags, const Source& source) {
  OB_ASSIGN_OR_RETURN(const std::vector<PricedClass> classes, ClassesFrom(source));
  const bool schedules = std::any_of(classes.begin(), classes.end(),
                                     [](const PricedClass& of) { return of.target.has_value(); });
  OB_ASSIGN_OR_RETURN(const RecordedRun run, RecordRun(flags.command, flags.steps, schedules));
  const std::string trouble = TroubleOf(flags, run);
  if (!trouble.empty()) std::fprintf(stderr, "outboard: %s\n", trouble.c_str());
  if (run.work.runs == 0) return 1;
  if (schedules && !HasAllGraphs(run.work, run.graphs))
    std::fprintf(stderr,
                 "outboard: %s wrote %zu of its %llu graphs (its client library may be older): "
                 "kernels are counted, not scheduled\n",
                 flags.command[0].c_str(), run.graphs.size(),
                 static_cast<unsigned long long>(run.work.graphs));
  std::vector<ClassEstimate> estimates;
  for (const PricedClass& one : classes)
    estimates.push_back(session::EstimateFor(
        one.of, one.target ? ScheduledFor(*one.target, run.work, run.graphs) : run.work));
  if (flags.measure && run.interrupted) {
    std::fputs("outboard: interrupted, so nothing is measured\n", stderr);
    std::fputs(flags.json ? EstimateJson(run.work, estimates).c_str()
                          : EstimateTable(run.work, estimates).c_str(),
               stdout);
    return 1;
  }
  if (flags.measure) {
    std::vector<std::string> variables;
    if (!source.target.empty()) variables = {"CLOUD=1"};
    if (!source.measured_on.empty()) variables.push_back(source.measured_on);
    OB_ASSIGN_OR_RETURN(const RecordedRun measured, MeasureRun(flags.command, variables));
    if (!measured.measured.has_value()) {
      std::fprintf(stderr,
                   "outboard: %s %s before %llu steps were done: nothing is measured\n",
                   flags.command[0].c_str(), measured.interrupted ? "was interrupted" : "ended",
                   static_cast<unsigned long long>(session::kStepsBeforeMeasure +
                                                   session::kStepsMeasured));
      return 1;
    }
    bool found = false;
    for (ClassEstimate& estimate : estimates) {
      const std::string& name = estimate.of.name;
      if (name != measured.measured->device_class && name != kThisMachine) continue;
      estimate = session::EstimateMeasured(estimate.of, run.work.steps,
                                           measured.measured->seconds_per_step,
                                           measured.measured->devices);
      found = true;
    }
    if (!found)
      std::fprintf(stderr, "outboard: the device was of the class %s, without a price\n",
                   measured.measured->device_class.c_str());
  }
  const std::string text = flags.json ? EstimateJson(run.work, estimates)
                                      : EstimateTable(run.work, estimates);
  std::fputs(text.c_str(), stdout);
  return !run.stopped && run.exit_code != 0 && run.exit_code != kInterruptedCode ? 1 : 0;
}

// Returns the exit code: 0; 1 where the program computed nothing, failed or could not be started,
// or was not measured; 2 for wrong usage, or where the gateway cannot be reached.
int Run(const EstimateFlags& flags) {
  const absl::StatusOr<Source> source = SourceOf(flags);
  if (!source.ok()) {
    Report(source.status());
    return kWrongUsage;
  }
  const absl::StatusOr<int> code = Estimate(flags, *source);
  return code.ok() ? *code : Report(code.status());
}

}  // namespace

void AddEstimateCommand(Arguments& app) {
  const auto given = std::make_shared<EstimateFlags>();
  EstimateFlags& flags = *given;
  Command estimate = app.Subcommand("estimate",
                                    "What a program will take and cost, without a device: estimate "
                                    "--steps 100 -- ./train (docs/estimates.md)");
  estimate
      .Add("--steps", &flags.steps,
           "End the program after so many steps; the estimate is of these (default: to its end)")
      .Positive()
      .ShowDefault("");
  estimate.Add("--gateway", &flags.gateway,
                "HOST:PORT or unix:/path whose classes are priced (default: $CLOUD_HOST with "
                "CLOUD=1, else this machine); the key is $CLOUD_KEY");
  estimate.Add("--prices", &flags.prices,
                "A price file (docs/prices.md), instead of a gateway's classes");
  estimate.Add("--measure", &flags.measure,
                "Also run steps on a device, at their cost: measures a second of them "
                "behind the first 10");
  estimate.Add("--json", &flags.json, "Print JSON");
  estimate.Add("command", &flags.command, "Behind --: the program");
  estimate.Runs(given, Run);
}

}  // namespace outboard::cli
