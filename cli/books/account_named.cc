#include "cli/books/account_named.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "cli/commands.h"

namespace outboard::cli {
namespace {

constexpr size_t kShownMax = 10;  // a line that can be read

std::string Shown(const std::vector<gateway::Tenant>& accounts) {
  std::string names;
  for (size_t i = 0; i < accounts.size() && i < kShownMax; ++i)
    absl::StrAppend(&names, i == 0 ? "" : ", ", accounts[i].name);
  if (accounts.size() > kShownMax)
    absl::StrAppend(&names, " and ", accounts.size() - kShownMax, " more (`outboard account ls`)");
  return names;
}

}  // namespace

absl::StatusOr<gateway::Tenant> AccountNamed(gateway::Accounts& accounts, const std::string& name,
                                             const std::string& folder) {
  auto found = accounts.FindTenant(name);
  if (!absl::IsNotFound(found.status())) return found;
  OB_ASSIGN_OR_RETURN(const std::vector<gateway::Tenant> all, accounts.ListTenants());
  std::string text = absl::StrCat("there is no account \"", Printable(name), "\"");
  // Whoever gave no name does not know that one is meant.
  if (name == AccountFlags().account_name)
    absl::StrAppend(&text, ", which is meant without --account NAME");
  if (all.empty()) {
    absl::StrAppend(&text, "; ", folder, " has none: `outboard account create NAME` makes one");
  } else {
    absl::StrAppend(&text, "; ", folder, " has ", Shown(all));
  }
  return absl::NotFoundError(text);
}

}  // namespace outboard::cli
