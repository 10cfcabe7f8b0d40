// The commands on what accounts have and owe: keys, accounts, credit, caps, invoices, usage,
// prices, devices. Their options; what they do is in cli/accounts.cc and beside this file.
#include <memory>

#include "cli/commands.h"

namespace outboard::cli {

namespace {

using Flags = std::shared_ptr<AccountFlags>;

void AddData(Command command, AccountFlags& account) {
  command.Add("--data", &account.data, kDataHelp);
}

void AddDataAndJson(Command command, AccountFlags& account) {
  AddData(command, account);
  command.Add("--json", &account.json, "Print JSON");
}

void AddKey(Arguments& app, const Flags& flags) {
  AccountFlags& account = *flags;
  Command key = app.Subcommand("key", "Manage the API keys in a data folder");
  key.RequireSubcommand();
  Command create = key.Subcommand("create", "Create a key and print it (it is not shown again)");
  create.Add("--name", &account.name, "Display name").ShowDefault();
  AddAccount(create, account, "The account that pays; created if new");
  create.Add("--scope", &account.scopes, "What it may do: some of run,usage,store,admin")
      .ShowDefault();
  create.Add("--expires", &account.expires,
             "Until when: 30d, 12h, 2026-01-31 or 2026-01-31T12:00:00Z (default: for ever)");
  create.Add("--from", &account.from,
             "From where: an address or a range like 10.0.0.0/8; may be given several times "
             "(default: anywhere)");
  AddDataAndJson(create, account);
  create.Runs(flags, RunKeyCreate);
  Command list = key.ListSubcommand("List all keys, without their secrets");
  AddDataAndJson(list, account);
  list.Runs(flags, RunKeyList);
  Command revoke = key.Subcommand("revoke", "Revoke a key; its sessions end within seconds");
  revoke.Add("id", &account.id, "The key's id, as `key ls` prints it").Required();
  AddData(revoke, account);
  revoke.Runs(flags, RunKeyRevoke);
}

void AddAccounts(Arguments& app, const Flags& flags) {
  AccountFlags& account = *flags;
  const auto add_name = [&](Command command) {
    command.Add("name", &account.account_name, "The account, as `account ls` prints it").Required();
  };
  Command accounts = app.Subcommand("account", "Manage the accounts in a data folder");
  accounts.RequireSubcommand();
  Command suspend = accounts.Subcommand(
      "suspend", "Refuse all keys of an account; what is open ends within seconds");
  suspend.Runs(flags, RunAccountSuspend);
  Command resume = accounts.Subcommand("resume", "Undo suspend");
  resume.Runs(flags, RunAccountResume);
  Command share_tuning = accounts.Subcommand(
      "share-tuning", "Whether speeds measured of kernels without constants are shared between "
                      "accounts (docs/tuning.md)");
  share_tuning.Runs(flags, RunAccountShareTuning);
  for (Command command : {suspend, resume, share_tuning}) add_name(command);
  share_tuning.Add("on|off", &account.on_off, "on, as it is for a new account, or off").Required();
  for (Command command : {suspend, resume, share_tuning}) AddData(command, account);
  Command list = accounts.ListSubcommand("List all accounts");
  AddData(list, account);
  list.Runs(flags, RunAccountList);
  Command create = accounts.Subcommand("create", "Make an account, with a credit limit");
  create.Add("name", &account.account_name, "Its name").Required();
  create.Add("--credit-limit", &account.amount,
             "US dollars; none: any amount (default: the gateway's --credit-limit)");
  AddDataAndJson(create, account);
  create.Runs(flags, RunAccountCreate);
  Command limit = accounts.Subcommand(
      "credit-limit", "Set by how much an account's balance may go below zero (docs/money.md)");
  add_name(limit);
  limit
      .Add("USD", &account.amount,
           "US dollars; \"none\" for any amount, \"default\" for the gateway's limit")
      .Required();
  AddDataAndJson(limit, account);
  limit.Runs(flags, RunAccountCreditLimit);
  Command show =
      accounts.Subcommand("show", "Show an account's balance, what is held, and its limits");
  add_name(show);
  AddDataAndJson(show, account);
  show.Runs(flags, RunAccountShow);
}

void AddCreditAndCap(Arguments& app, const Flags& flags) {
  AccountFlags& account = *flags;
  Command credit = app.Subcommand("credit", "Credit accounts (docs/money.md)");
  credit.RequireSubcommand();
  Command add = credit.Subcommand("add", "Add to an account's balance");
  add.Add("USD", &account.amount, "US dollars, such as 20 or 0.50").Required();
  add.Add("--id", &account.id,
          "Name of this payment: the same command again adds nothing, another amount is refused")
      .Required();
  add.Runs(flags, RunCreditAdd);
  Command cap = app.Subcommand("cap", "Bound what is charged (docs/money.md)");
  cap.RequireSubcommand();
  Command set = cap.Subcommand("set", "Bound what an account or a key is charged from now on");
  set.Add("USD", &account.amount, "US dollars; none: no cap").Required();
  set.Add("--key", &account.id, "A key's id, as `key ls` prints it (default: the account)");
  set.Runs(flags, RunCapSet);
  for (Command command : {add, set}) {
    AddAccount(command, account, "The account");
    AddDataAndJson(command, account);
  }
}

void AddBooks(Arguments& app, const Flags& flags) {
  AccountFlags& account = *flags;
  const auto add_gateway = [&](Command command) {
    command.Add("--gateway", &account.gateway,
                "Ask this gateway, with $CLOUD_KEY, instead of reading --data");
  };
  Command invoice = app.Subcommand(
      "invoice", "List what an account was charged and credited, or check it (docs/money.md)");
  invoice.Add("--verify", &account.verify,
              "Compute every line and the chain of hashes anew, and compare them with what the "
              "gateway signed before; exit code 1 if anything differs");
  AddAccount(invoice, account, "The account, without --gateway");
  add_gateway(invoice);
  AddDataAndJson(invoice, account);
  invoice.Runs(flags, RunInvoice);
  Command audit = app.Subcommand(
      "audit", "Check the whole ledger of a data folder; exit code 1 if it does not verify");
  AddDataAndJson(audit, account);
  audit.Runs(flags, RunAudit);
  Command archive = app.Subcommand(
      "archive", "Move a closed month of the ledger to a file of its own (docs/money.md)");
  archive.Add("month", &account.month, "The month, like 2026-10").Required();
  AddDataAndJson(archive, account);
  archive.Runs(flags, RunArchive);
  Command usage = app.Subcommand("usage", "Show every session: how long it ran, what it cost");
  usage.Add("--since", &account.since,
            "Only sessions that ran since this time, with what was charged since: 2026-01-31 or "
            "2026-01-31T12:00:00Z (default: all)");
  add_gateway(usage);
  usage.Add("--by", &account.by,
            "Sums by some of account, key, session, day and state, as in key,day (default: the "
            "sessions, one by one)");
  AddDataAndJson(usage, account);
  usage.Runs(flags, RunUsage);
}

// Of the gateway that runs in the data folder.
void AddPricesDevicesAndTop(Arguments& app, const Flags& flags) {
  AccountFlags& account = *flags;
  Command price = app.Subcommand("price", "What devices cost (docs/prices.md)");
  price.RequireSubcommand();
  Command show = price.Subcommand("show", "Show the prices that the gateway has now");
  show.Runs(flags, RunPriceShow);
  Command device = app.Subcommand("device", "The devices of a gateway");
  device.RequireSubcommand();
  Command list = device.ListSubcommand("List devices: worker, class, state, and who has them");
  list.Runs(flags, RunDeviceList);
  Command top = app.Subcommand("top", "Watch sessions, the queue and devices, until Ctrl-C");
  top.Add("--interval", &account.interval_s, "Seconds between two pages").Between(0.1, 3600.0);
  top.Add("--count", &account.count, "So many pages, then end; 0: until Ctrl-C")
      .Between(0, 1'000'000);
  top.Runs(flags, RunTop);
  for (Command command : {show, list, top}) AddDataAndJson(command, account);
}

}  // namespace

void AddAccountCommands(Arguments& app) {
  const auto flags = std::make_shared<AccountFlags>();
  AddKey(app, flags);
  AddAccounts(app, flags);
  AddCreditAndCap(app, flags);
  AddBooks(app, flags);
  AddPricesDevicesAndTop(app, flags);
}

}  // namespace outboard::cli
