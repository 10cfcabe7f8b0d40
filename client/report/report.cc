#include "client/report/report.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/report/report_channel.h"
#include "client/session/current_session.h"
#include "client/tensor/error.h"

namespace outboard {
namespace {

bool IsReportName(std::string_view name) {
  return !name.empty() && name.size() <= 64 && !absl::ascii_isdigit(name[0]) && name != "step" &&
         name != "cost_micro_usd" && std::ranges::all_of(name, [](char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '/' || c == '-';
         });
}

}  // namespace

void Report(int64_t step, std::span<const ReportedValue> values, At at) {
  internal::ReportAlone(step, values, at);
  if (!WarmUpEndsAt(step, at)) return;
  CloseSession().IgnoreError();
  std::exit(0);
}

bool WarmUpEndsAt(int64_t step, At at) {
  int64_t last = 0;
  const char* const text = std::getenv("OUTBOARD_WARM_UP");
  if (text == nullptr || !absl::SimpleAtoi(text, &last) || step < last) return false;
  const std::shared_ptr<Session> session = SessionIfConnected();
  if (session != nullptr && session->keeps_any()) return true;
  throw Error(absl::FailedPreconditionError(
                  "--warm-up: the program has kept nothing in its session (outboard.keep), so that "
                  "its trials would begin with nothing"),
              at);
}

void internal::ReportAlone(int64_t step, std::span<const ReportedValue> values, At at) {
  if (step < 0) ThrowInvalid(at, absl::StrCat("a report of step ", step));
  std::string words = absl::StrCat("step=", step);
  for (const auto& [text, value] : values) {
    const std::string name(text);
    if (!IsReportName(name))
      ThrowInvalid(at,
                   absl::StrCat("\"", absl::CHexEscape(name), "\" is no name of a reported value"));
    absl::StrAppendFormat(&words, " %s=%.17g", name, value);
  }
  if (!internal::HasReportChannel()) return;
  const std::shared_ptr<Session> session = SessionIfConnected();
  internal::WriteReport(words, session == nullptr ? 0 : session->stats().cost_micro_usd);
}

void Report(int64_t step, std::initializer_list<ReportedValue> values, At at) {
  Report(step, std::span<const ReportedValue>(values.begin(), values.size()), at);
}

bool IsTrialOfSweep() { return internal::HasReportChannel(); }

}  // namespace outboard
