// The commands on what accounts have and owe: keys, accounts, credit, caps, invoices, usage,
// prices, devices. Their options; what they do is in cli/accounts.cc and beside this file.
#include <memory>

#include "cli/commands.h"

namespace outboard::cli {

void AddAccountCommands(Arguments& app) {
  const auto flags = std::make_shared<AccountFlags>();
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
  Command list = key.ListSubcommand("List all keys, without their secrets");
  Command revoke = key.Subcommand("revoke", "Revoke a key; its sessions end within seconds");
  revoke.Add("id", &account.id, "The key's id, from ls").Required();
  Command accounts = app.Subcommand("account", "Manage the accounts in a data folder");
  accounts.RequireSubcommand();
  Command suspend = accounts.Subcommand(
      "suspend", "Refuse all keys of an account; what is open ends within seconds");
  Command resume = accounts.Subcommand("resume", "Undo suspend");
  Command share_tuning = accounts.Subcommand(
      "share-tuning", "Whether speeds measured of kernels without constants are shared between "
                      "accounts (docs/tuning.md)");
  for (Command command : {suspend, resume, share_tuning})
    command.Add("name", &account.tenant, "The account, as `account ls` prints it").Required();
  share_tuning.Add("on|off", &account.on_off, "on or off (default: on)").Required();
  Command account_list = accounts.ListSubcommand("List all accounts");
  Command account_create = accounts.Subcommand("create", "Make an account, with a credit limit");
  account_create.Add("name", &account.tenant, "Its name").Required();
  Command account_limit = accounts.Subcommand(
      "credit-limit", "Set by how much an account's balance may go below zero (docs/money.md)");
  account_limit.Add("name", &account.tenant, "The account, as `account ls` prints it").Required();
  account_limit
      .Add("USD", &account.amount, "US dollars; none: any amount; default: the gateway's")
      .Required();
  account_create.Add("--credit-limit", &account.amount,
                     "US dollars; none: any amount (default: the gateway's --credit-limit)");
  Command account_show =
      accounts.Subcommand("show", "Show an account's balance, what is held, and its limits");
  account_show.Add("name", &account.tenant, "The account, as `account ls` prints it").Required();
  Command credit = app.Subcommand("credit", "Credit accounts (docs/money.md)");
  credit.RequireSubcommand();
  Command credit_add = credit.Subcommand("add", "Add to an account's balance");
  credit_add.Add("USD", &account.amount, "US dollars, such as 20 or 0.50").Required();
  credit_add
      .Add("--id", &account.id,
           "Name of this payment: the same command again adds nothing, another amount is refused")
      .Required();
  Command cap = app.Subcommand("cap", "Bound what is charged (docs/money.md)");
  cap.RequireSubcommand();
  Command cap_set =
      cap.Subcommand("set", "Bound what an account or a key is charged from now on");
  cap_set.Add("USD", &account.amount, "US dollars; none: no cap").Required();
  cap_set.Add("--key", &account.id, "A key's id, as `key ls` prints it (default: the account)");
  for (Command command : {credit_add, cap_set})
    AddAccount(command, account, "The account");
  Command invoice = app.Subcommand(
      "invoice", "List what an account was charged and credited, or check it (docs/money.md)");
  invoice.Add("--verify", &account.verify,
              "Compute every line and the chain of hashes anew, and compare them with what the "
              "gateway signed before; exit code 1 if anything differs");
  AddAccount(invoice, account, "The account, without --gateway");
  Command audit = app.Subcommand(
      "audit", "Check the whole ledger of a data folder; exit code 1 if it does not verify");
  Command archive = app.Subcommand(
      "archive", "Move a closed month of the ledger to a file of its own (docs/money.md)");
  archive.Add("month", &account.month, "The month, like 2026-10").Required();
  Command usage = app.Subcommand("usage", "Show every session: how long it ran, what it cost");
  usage.Add("--since", &account.since,
            "Only sessions that ran since this time, with what was charged since: 2026-01-31 or "
            "2026-01-31T12:00:00Z (default: all)");
  for (Command command : {usage, invoice})
    command.Add("--gateway", &account.gateway,
                "Ask this gateway, with $CLOUD_KEY, instead of reading --data");
  usage.Add("--by", &account.by,
            "Sums by some of account, key, session, day and state, as in key,day (default: the "
            "sessions, one by one)");
  Command price = app.Subcommand("price", "What devices cost (docs/prices.md)");
  price.RequireSubcommand();
  Command price_show = price.Subcommand("show", "Show the prices that the gateway has now");
  Command device = app.Subcommand("device", "The devices of a gateway");
  device.RequireSubcommand();
  Command device_list =
      device.ListSubcommand("List devices: worker, class, state, and who has them");
  Command top = app.Subcommand("top", "Watch sessions, the queue and devices, until Ctrl-C");
  top.Add("--interval", &account.interval_s, "Seconds between two pages").Between(0.1, 3600.0);
  top.Add("--count", &account.count, "So many pages, then end (default: until Ctrl-C)")
      .Between(0, 1'000'000);
  for (Command command :
       {create, list, revoke, usage, suspend, resume, share_tuning, account_list, account_create,
        account_limit, account_show, credit_add, cap_set, price_show, device_list, top,
        invoice, audit, archive}) {
    command.Add("--data", &account.data, kDataHelp);
  }
  for (Command command : {create, list, usage, account_create, account_limit, account_show,
                          credit_add, cap_set, price_show, device_list, top, invoice,
                          audit, archive})
    command.Add("--json", &account.json, "Print JSON");
  create.Runs(flags, RunKeyCreate);
  list.Runs(flags, RunKeyList);
  revoke.Runs(flags, RunKeyRevoke);
  suspend.Runs(flags, RunAccountSuspend);
  resume.Runs(flags, RunAccountResume);
  share_tuning.Runs(flags, RunAccountShareTuning);
  account_list.Runs(flags, RunAccountList);
  account_create.Runs(flags, RunAccountCreate);
  account_limit.Runs(flags, RunAccountCreditLimit);
  account_show.Runs(flags, RunAccountShow);
  credit_add.Runs(flags, RunCreditAdd);
  cap_set.Runs(flags, RunCapSet);
  invoice.Runs(flags, RunInvoice);
  audit.Runs(flags, RunAudit);
  archive.Runs(flags, RunArchive);
  usage.Runs(flags, RunUsage);
  price_show.Runs(flags, RunPriceShow);
  device_list.Runs(flags, RunDeviceList);
  top.Runs(flags, RunTop);
}

}  // namespace outboard::cli
