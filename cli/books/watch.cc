// `outboard price show`, `device ls`, `top` and `usage --by`: what an operator looks at, in the
// data folder of a gateway that runs or, for usage, that has run.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "cli/books/fleet.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "gateway/accounts/accounts.h"
#include "gateway/accounts/usage_breakdown.h"
#include "gateway/observe/operator_socket.h"
#include "gateway/server/gateway.h"

namespace outboard::cli {

namespace {

// Without them numbers are shown.
AccountNames NamesIn(const std::string& folder) {
  AccountNames names;
  auto accounts = gateway::Accounts::Open(gateway::AccountsPath(folder));
  if (!accounts.ok()) return names;
  const auto tenants = (*accounts)->ListTenants();
  if (!tenants.ok()) return names;
  for (const gateway::Tenant& tenant : *tenants) names[tenant.id.value] = tenant.name;
  return names;
}

absl::Status Print(const absl::StatusOr<std::string>& text) {
  if (!text.ok()) return text.status();
  std::fputs(text->c_str(), stdout);
  return absl::OkStatus();
}

absl::Status PriceShow(const AccountFlags& flags) {
  OB_ASSIGN_OR_RETURN(const std::string answer, gateway::AskGateway(DataFolderOr(flags.data)));
  return Print(flags.json ? PricesJson(answer) : PricesText(answer));
}

absl::Status DeviceList(const AccountFlags& flags) {
  OB_ASSIGN_OR_RETURN(const std::string answer, gateway::AskGateway(DataFolderOr(flags.data)));
  const AccountNames names = NamesIn(DataFolderOr(flags.data));
  return Print(flags.json ? DevicesJson(answer, names) : DevicesText(answer, names));
}

// Waits; false: somebody wants an end. The signals are blocked since the program began.
bool Pause(double seconds) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&set, signal);
  const auto whole = static_cast<time_t>(seconds);
  const timespec wait{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  return sigtimedwait(&set, nullptr, &wait) < 0 && errno != EINVAL;
}

// On a terminal one page over the other; elsewhere one after the other.
absl::Status Top(const AccountFlags& flags) {
  const bool redraws = !flags.json && isatty(STDOUT_FILENO) != 0;
  for (int64_t shown = 0;; ++shown) {
    OB_ASSIGN_OR_RETURN(const std::string answer, gateway::AskGateway(DataFolderOr(flags.data)));
    const AccountNames names = NamesIn(DataFolderOr(flags.data));
    winsize window{};
    if (!redraws || ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_row == 0)
      window = {.ws_row = redraws ? uint16_t{24} : uint16_t{10'000},
                .ws_col = redraws ? uint16_t{80} : uint16_t{1000},
                .ws_xpixel = 0,
                .ws_ypixel = 0};
    if (redraws) std::fputs("\033[H\033[J", stdout);
    OB_RETURN_IF_ERROR(Print(flags.json
                                 ? TopJson(answer, names)
                                 : TopText(answer, names, window.ws_row - 1, window.ws_col)));
    if (std::fflush(stdout) != 0) return absl::OkStatus();  // whoever read it has gone
    if (flags.count > 0 && shown + 1 >= flags.count) return absl::OkStatus();
    if (!Pause(flags.interval_s)) return absl::OkStatus();
  }
}

std::string Seconds(int64_t ms) {
  return absl::StrFormat("%d.%03d", ms / 1000, ms % 1000);
}

std::string PartAsJson(const std::vector<gateway::UsageBy>& by, const gateway::UsagePart& part) {
  std::string text = "{";
  for (size_t i = 0; i < by.size(); ++i)
    absl::StrAppend(&text, Quoted(gateway::NameOf(by[i])), ": ", Quoted(part.names[i]), ", ");
  absl::StrAppend(&text, "\"device_seconds\": ", Seconds(part.device_ms),
                  ", \"kept_seconds\": ", Seconds(part.kept_ms),
                  ", \"amount_micro_usd\": ", part.amount.value, "}\n");
  return text;
}

// A session is 32 digits; names of accounts and keys are cut.
int WidthOf(gateway::UsageBy by) { return by == gateway::UsageBy::kSession ? 32 : 16; }

std::string PartAsLine(const std::vector<gateway::UsageBy>& by, const gateway::UsagePart& part) {
  std::string text;
  for (size_t i = 0; i < by.size(); ++i) {
    const std::string name = part.names[i].empty() ? "-" : part.names[i];
    absl::StrAppend(&text, absl::StrFormat("%-*s  ", WidthOf(by[i]), name));
  }
  absl::StrAppend(&text, absl::StrFormat("%14s  %14s  %14s\n", Seconds(part.device_ms),
                                         Seconds(part.kept_ms), ToString(part.amount)));
  return text;
}

}  // namespace

absl::Status PrintUsageBy(const AccountFlags& flags, gateway::WallTime since) {
  if (!flags.gateway.empty())
    return absl::InvalidArgumentError("--by reads a data folder, not a --gateway");
  const auto by = gateway::ParseUsageBy(flags.by);
  if (!by.ok()) return absl::InvalidArgumentError(absl::StrCat("--by: ", by.status().message()));
  auto books = gateway::UsageBreakdown::Open(gateway::AccountsPath(DataFolderOr(flags.data)));
  if (absl::IsNotFound(books.status()))
    return absl::InvalidArgumentError("no accounts in " + DataFolderOr(flags.data) +
                                      "; name the folder with --data");
  OB_RETURN_IF_ERROR(books.status());
  if (!flags.json) {
    for (const gateway::UsageBy each : *by)
      std::printf("%-*s  ", WidthOf(each), std::string(gateway::NameOf(each)).c_str());
    std::printf("%14s  %14s  %14s\n", "device s", "kept s", "amount");
  }
  gateway::UsagePart total;
  total.names.assign(by->size(), "");
  if (!total.names.empty()) total.names.front() = "total";
  OB_RETURN_IF_ERROR((*books)->Read(*by, since, [&](const gateway::UsagePart& part) {
    total.device_ms += part.device_ms;
    total.kept_ms += part.kept_ms;
    total.amount.value += part.amount.value;
    std::fputs((flags.json ? PartAsJson(*by, part) : PartAsLine(*by, part)).c_str(), stdout);
  }));
  if (!flags.json) std::fputs(PartAsLine(*by, total).c_str(), stdout);
  return absl::OkStatus();
}

int RunPriceShow(const AccountFlags& flags) { return Report(PriceShow(flags)); }
int RunDeviceList(const AccountFlags& flags) { return Report(DeviceList(flags)); }
int RunTop(const AccountFlags& flags) { return Report(Top(flags)); }

}  // namespace outboard::cli
