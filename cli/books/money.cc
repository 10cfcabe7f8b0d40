// `outboard credit`, `cap`, and what `account` says of money: on the accounts file of a data
// folder, also while its gateway runs.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "cli/books/account_named.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "gateway/accounts/accounts.h"
#include "gateway/base/clock.h"
#include "gateway/ledger/ledger.h"
#include "gateway/server/gateway.h"

namespace outboard::cli {

namespace {

using gateway::BudgetScope;
using gateway::MicroUsd;
using gateway::SpendBudget;

constexpr char kNone[] = "none";

// The books of a data folder, and one account there.
struct OpenBooks {
  std::unique_ptr<gateway::Accounts> accounts;
  std::unique_ptr<gateway::Ledger> ledger;
};

absl::StatusOr<OpenBooks> BooksOf(const AccountFlags& flags, bool create) {
  const std::string folder = DataFolderOr(flags.data);
  const std::string path = gateway::AccountsPath(folder);
  std::error_code error;
  if (!create && !std::filesystem::exists(path, error))
    return absl::InvalidArgumentError("no accounts in " + folder +
                                      "; name the gateway's folder with --data");
  if (create) std::filesystem::create_directories(folder, error);
  if (error)
    return absl::InvalidArgumentError("cannot make the data folder " + folder + ": " +
                                      error.message());
  OpenBooks books;
  OB_ASSIGN_OR_RETURN(books.accounts, gateway::Accounts::Open(path));
  OB_ASSIGN_OR_RETURN(books.ledger, gateway::Ledger::Open(path));
  return books;
}

absl::StatusOr<gateway::Tenant> AccountOf(const AccountFlags& flags, const OpenBooks& books) {
  return AccountNamed(*books.accounts, flags.account_name, DataFolderOr(flags.data));
}

// However large: an argument that is not good, as any other.
absl::StatusOr<MicroUsd> AmountFrom(const char* what, const std::string& text) {
  auto amount = gateway::ParseUsd(text);
  if (!amount.ok())
    return absl::InvalidArgumentError(
        absl::StrCat(what, " \"", Printable(text), "\": ", amount.status().message()));
  return amount;
}

std::string JsonOf(const std::optional<MicroUsd>& amount) {
  return amount.has_value() ? absl::StrCat(amount->value) : "null";
}

std::string TextOf(const std::optional<MicroUsd>& amount, const char* otherwise) {
  if (!amount.has_value()) return otherwise;
  return *amount == gateway::kNoCreditLimit ? "none" : ToString(*amount);
}

absl::Status PrintAccount(const AccountFlags& flags, const OpenBooks& books,
                          const gateway::Tenant& tenant) {
  OB_ASSIGN_OR_RETURN(const MicroUsd balance, books.ledger->Balance(tenant.id));
  OB_ASSIGN_OR_RETURN(const SpendBudget budget, books.ledger->BudgetOf(tenant.id));
  if (flags.json) {
    const bool unlimited = budget.credit_limit == gateway::kNoCreditLimit;
    std::printf(
        "{\"account\": %s, \"balance_micro_usd\": %lld, \"held_micro_usd\": %lld, "
        "\"credit_limit_micro_usd\": %s, \"cap_micro_usd\": %s, \"spent_micro_usd\": %lld, "
        "\"suspended\": %s}\n",
        Quoted(tenant.name).c_str(), static_cast<long long>(balance.value),
        static_cast<long long>(budget.held.value),
        unlimited ? "\"none\"" : JsonOf(budget.credit_limit).c_str(), JsonOf(budget.cap).c_str(),
        static_cast<long long>(budget.spent.value), tenant.suspended_at ? "true" : "false");
    return absl::OkStatus();
  }
  std::printf("account       %s%s\n", tenant.name.c_str(),
              tenant.suspended_at.has_value() ? "  (suspended)" : "");
  std::printf("balance       %s\n", ToString(balance).c_str());
  std::printf("held          %s  for running sessions\n", ToString(budget.held).c_str());
  std::printf("credit limit  %s\n",
              TextOf(budget.credit_limit, "the gateway's --credit-limit").c_str());
  if (budget.cap.has_value())
    std::printf("cap           %s, of which %s is charged\n", ToString(*budget.cap).c_str(),
                ToString(budget.spent).c_str());
  else
    std::printf("cap           none\n");
  return absl::OkStatus();
}

absl::Status AccountCreate(const AccountFlags& flags) {
  std::optional<MicroUsd> limit;
  if (!flags.amount.empty()) {
    OB_ASSIGN_OR_RETURN(limit, CreditLimitFrom("--credit-limit", flags.amount));
  }
  OB_ASSIGN_OR_RETURN(const OpenBooks books, BooksOf(flags, /*create=*/true));
  OB_ASSIGN_OR_RETURN(const gateway::Tenant tenant,
                      books.accounts->CreateTenant(flags.account_name, gateway::WallNow()));
  OB_RETURN_IF_ERROR(books.ledger->SetCreditLimit(tenant.id, limit));
  return PrintAccount(flags, books, tenant);
}

absl::Status AccountShow(const AccountFlags& flags) {
  OB_ASSIGN_OR_RETURN(const OpenBooks books, BooksOf(flags, /*create=*/false));
  OB_ASSIGN_OR_RETURN(const gateway::Tenant tenant, AccountOf(flags, books));
  return PrintAccount(flags, books, tenant);
}

absl::Status AccountCreditLimit(const AccountFlags& flags) {
  std::optional<MicroUsd> limit;
  if (flags.amount != "default") {
    OB_ASSIGN_OR_RETURN(limit, CreditLimitFrom("the credit limit", flags.amount));
  }
  OB_ASSIGN_OR_RETURN(const OpenBooks books, BooksOf(flags, /*create=*/false));
  OB_ASSIGN_OR_RETURN(const gateway::Tenant tenant, AccountOf(flags, books));
  OB_RETURN_IF_ERROR(books.ledger->SetCreditLimit(tenant.id, limit));
  return PrintAccount(flags, books, tenant);
}

absl::Status CreditAdd(const AccountFlags& flags) {
  OB_ASSIGN_OR_RETURN(const MicroUsd amount, AmountFrom("the credit", flags.amount));
  OB_ASSIGN_OR_RETURN(const OpenBooks books, BooksOf(flags, /*create=*/false));
  OB_ASSIGN_OR_RETURN(const gateway::Tenant tenant, AccountOf(flags, books));
  const auto posting = books.ledger->Credit(tenant.id, amount,
                                            absl::StrCat("credit/", tenant.id.value, "/", flags.id),
                                            gateway::WallNow());
  if (absl::IsAlreadyExists(posting.status()))
    return absl::AlreadyExistsError(
        absl::StrCat("a payment with the id ", flags.id, " was added with another amount"));
  if (!posting.ok()) return posting.status();
  OB_ASSIGN_OR_RETURN(const MicroUsd balance, books.ledger->Balance(tenant.id));
  if (flags.json) {
    std::printf(
        "{\"account\": %s, \"id\": %s, \"amount_micro_usd\": %lld, \"balance_micro_usd\": %lld, "
        "\"entry\": %lld, \"again\": %s}\n",
        Quoted(tenant.name).c_str(), Quoted(flags.id).c_str(), static_cast<long long>(amount.value),
        static_cast<long long>(balance.value), static_cast<long long>(posting->number),
        posting->replayed ? "true" : "false");
  } else {
    std::printf("%s %s: %s; the balance is %s\n", tenant.name.c_str(),
                posting->replayed ? "has had this credit" : "is credited", ToString(amount).c_str(),
                ToString(balance).c_str());
  }
  return absl::OkStatus();
}

absl::Status CapSet(const AccountFlags& flags) {
  std::optional<MicroUsd> cap;
  if (flags.amount != kNone) {
    OB_ASSIGN_OR_RETURN(cap, AmountFrom("the cap", flags.amount));
  }
  OB_ASSIGN_OR_RETURN(const OpenBooks books, BooksOf(flags, /*create=*/false));
  BudgetScope scope = BudgetScope::kKey;
  std::string name = flags.id;
  if (name.empty()) {
    OB_ASSIGN_OR_RETURN(const gateway::Tenant tenant, AccountOf(flags, books));
    scope = BudgetScope::kAccount;
    name = absl::StrCat(tenant.id.value);
  } else {
    OB_ASSIGN_OR_RETURN(const auto keys, books.accounts->ListKeys());
    bool known = false;
    for (const gateway::ApiKey& key : keys) known |= key.id == name;
    if (!known) return NoSuchKey(name);
  }
  OB_RETURN_IF_ERROR(books.ledger->SetCap(scope, name, cap));
  OB_ASSIGN_OR_RETURN(const SpendBudget budget, books.ledger->BudgetOf(scope, name));
  const char* const what = scope == BudgetScope::kKey ? "key" : "account";
  const std::string& shown = scope == BudgetScope::kKey ? name : flags.account_name;
  if (flags.json) {
    std::printf(
        "{\"%s\": %s, \"cap_micro_usd\": %s, \"spent_micro_usd\": %lld, "
        "\"held_micro_usd\": %lld}\n",
        what, Quoted(shown).c_str(), JsonOf(budget.cap).c_str(),
        static_cast<long long>(budget.spent.value), static_cast<long long>(budget.held.value));
  } else if (budget.cap.has_value()) {
    std::printf("%s %s: from now on at most %s, of which %s is held for running sessions\n", what,
                shown.c_str(), ToString(*budget.cap).c_str(), ToString(budget.held).c_str());
  } else {
    std::printf("%s %s: no cap\n", what, shown.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MicroUsd> CreditLimitFrom(const char* what, const std::string& text) {
  if (text == kNone) return gateway::kNoCreditLimit;
  return AmountFrom(what, text);
}

int RunAccountCreate(const AccountFlags& flags) { return Report(AccountCreate(flags)); }
int RunAccountShow(const AccountFlags& flags) { return Report(AccountShow(flags)); }
int RunAccountCreditLimit(const AccountFlags& flags) { return Report(AccountCreditLimit(flags)); }
int RunCreditAdd(const AccountFlags& flags) { return Report(CreditAdd(flags)); }
int RunCapSet(const AccountFlags& flags) { return Report(CapSet(flags)); }

}  // namespace outboard::cli
