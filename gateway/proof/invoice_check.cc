#include "gateway/proof/invoice_check.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/ledger/entry.h"
#include "gateway/proof/receipt_rows.h"
#include "wire/proof/receipt.h"

namespace outboard::gateway {
namespace {

absl::Status Wrong(int64_t number, std::string_view what) {
  return absl::DataLossError(absl::StrCat("entry ", number, " ", std::string(what)));
}

std::string NameOf(const LeasedDevice& device) {
  return absl::StrCat("lease ", device.lease.grant, " of session ", device.lease.session.Hex(),
                      device.device == 0 ? "" : absl::StrCat(", device ", device.device));
}

}  // namespace

void Fill(const PostedEntry& entry, proto::InvoiceEntry& out) {
  out.set_number(entry.number);
  out.set_at_unix_ms(entry.at.unix_ms);
  out.set_key(entry.body.key);
  out.set_memo(entry.body.memo);
  for (const LedgerLine& line : entry.body.lines) {
    proto::InvoiceSide& side = *out.add_sides();
    side.set_account(line.account.name);
    side.set_amount_micro_usd(line.amount.value);
  }
  if (!entry.body.charge.has_value()) return;
  const Charge& charge = *entry.body.charge;
  proto::InvoiceUse& use = *out.mutable_use();
  use.set_session_id(charge.device.lease.session.Bytes());
  use.set_grant(charge.device.lease.grant);
  use.set_device(charge.device.device);
  use.set_price_per_hour_micro_usd(charge.price_per_hour.value);
  use.set_granted_unix_ms(charge.granted_at.unix_ms);
  use.set_from(charge.from_ms / entry.body.unit_ms);
  use.set_to(charge.to_ms / entry.body.unit_ms);
  use.set_unit_ms(entry.body.unit_ms);
  use.set_state(static_cast<uint32_t>(charge.use));
}

absl::StatusOr<PostedEntry> EntryFrom(const proto::InvoiceEntry& in) {
  PostedEntry entry;
  entry.number = in.number();
  entry.at = WallTime{in.at_unix_ms()};
  entry.body.key = in.key();
  entry.body.memo = in.memo();
  for (const proto::InvoiceSide& side : in.sides())
    entry.body.lines.push_back({{side.account()}, MicroUsd{side.amount_micro_usd()}});
  OB_RETURN_IF_ERROR(CheckLines(entry.body.lines));
  if (!in.has_use()) return entry;
  const proto::InvoiceUse& use = in.use();
  const std::optional<SessionId> session = SessionId::FromBytes(use.session_id());
  const std::string_view account = entry.body.lines[0].account.name;
  constexpr std::string_view kTenant = "tenant:";
  int64_t tenant = 0;
  if (!session.has_value() || use.grant() > static_cast<uint64_t>(INT64_MAX) ||
      (use.unit_ms() != 1 && use.unit_ms() != 1000) || use.from() < 0 ||
      use.to() > kLeaseMsMax / use.unit_ms() || use.from() > use.to() ||
      use.state() >= static_cast<uint32_t>(kUseStates) ||
      !account.starts_with(kTenant) ||
      !absl::SimpleAtoi(std::string(account.substr(kTenant.size())), &tenant))
    return Wrong(entry.number, "is no charge that a ledger holds");
  entry.body.unit_ms = use.unit_ms();
  entry.body.charge = Charge{.device = {{*session, use.grant()}, use.device()},
                             .tenant = TenantId{tenant},
                             .price_per_hour = MicroUsd{use.price_per_hour_micro_usd()},
                             .granted_at = WallTime{use.granted_unix_ms()},
                             .from_ms = use.from() * use.unit_ms(),
                             .to_ms = use.to() * use.unit_ms(),
                             .amount = entry.body.lines[1].amount,
                             .use = static_cast<UseState>(use.state())};
  return entry;
}

InvoiceCheck::InvoiceCheck(std::vector<proto::LedgerHead> seen) {
  for (proto::LedgerHead& head : seen) {
    const int64_t entries = head.entries();
    seen_.emplace(entries, std::move(head));
  }
}

absl::Status InvoiceCheck::Add(const proto::InvoiceEntry& in) {
  OB_RETURN_IF_ERROR(CompareSeen());
  auto entry = EntryFrom(in);
  if (!entry.ok()) return Wrong(in.number(), std::string(entry.status().message()));
  if (entry->number <= chain_.last_number)
    return Wrong(entry->number, "is not behind the one ahead of it");
  if (entry->at.unix_ms < last_at_ms_)
    return Wrong(entry->number, "is stamped before the one ahead of it");
  last_at_ms_ = entry->at.unix_ms;
  if (entry->body.charge.has_value()) OB_RETURN_IF_ERROR(CheckUse(*entry));
  for (const LedgerLine& line : entry->body.lines) {
    int64_t tenant = 0;
    if (!line.account.name.starts_with("tenant:") ||
        !absl::SimpleAtoi(line.account.name.substr(7), &tenant))
      continue;
    const auto sum = gateway::Add(balances_[tenant], line.amount);
    if (!sum.ok()) return Wrong(entry->number, "makes a balance that no ledger holds");
    balances_[tenant] = *sum;
  }
  chain_.Add(entry->number, entry->at.unix_ms, BodyHash(entry->body));
  ++report_.entries;
  return absl::OkStatus();
}

// L3 and L4 of the ledger, and that key and lines are those of the charge.
absl::Status InvoiceCheck::CheckUse(const PostedEntry& entry) {
  const Charge& charge = *entry.body.charge;
  if (absl::Status sound = CheckCharge(charge); !sound.ok())
    return Wrong(entry.number, std::string(sound.message()));
  const EntryBody expected = BodyOf(charge, entry.body.unit_ms);
  if (expected.key != entry.body.key || expected.lines != entry.body.lines)
    return Wrong(entry.number, "has a key or lines that are not those of its charge");
  if (charged_ != 0 && charged_ != charge.tenant.value)
    return Wrong(entry.number, "charges another account");
  charged_ = charge.tenant.value;
  const auto [it, is_new] = leased_.try_emplace(
      charge.device,
      Leased{charge.price_per_hour.value, charge.granted_at.unix_ms, 0, charge.use});
  Leased& leased = it->second;
  if (leased.price != charge.price_per_hour.value ||
      leased.granted_ms != charge.granted_at.unix_ms || leased.use != charge.use)
    return Wrong(entry.number, "changes the price or the begin of its lease");
  if (charge.from_ms != leased.to_ms)
    return Wrong(entry.number, "charges time twice, or leaves some out");
  leased.to_ms = charge.to_ms;
  if (HoldsDevice(charge.use)) report_.used.device_ms += charge.to_ms - charge.from_ms;
  report_.used.amount.value += charge.amount.value;
  return absl::OkStatus();
}

// Heads of as many entries as the chain has now.
absl::Status InvoiceCheck::CompareSeen() {
  const auto [first, last] = seen_.equal_range(chain_.entries);
  for (auto it = first; it != last; ++it) {
    const proto::LedgerHead& head = it->second;
    OB_RETURN_IF_ERROR(signing::CheckHead(head));
    if (head.account_hash() != chain_.hash)
      return absl::DataLossError(absl::StrCat(
          "the first ", chain_.entries, " entries are not those that the gateway signed at ",
          ToString(WallTime{head.at_unix_ms()}), ": they were written anew"));
    ++report_.heads_seen;
  }
  return absl::OkStatus();
}

absl::Status InvoiceCheck::AddReceipt(const proto::Receipt& receipt) {
  OB_RETURN_IF_ERROR(signing::CheckReceipt(receipt));
  const std::optional<SessionId> session = SessionId::FromBytes(receipt.session_id());
  OB_CHECK(session.has_value());
  int64_t& usable =
      usable_ms_[LeasedDevice{{*session, receipt.grant()}, receipt.device()}];
  usable = std::max(usable, static_cast<int64_t>(receipt.usable_ms()));
  return absl::OkStatus();
}

absl::StatusOr<InvoiceReport> InvoiceCheck::Finish(const proto::LedgerHead& head) {
  OB_RETURN_IF_ERROR(CompareSeen());
  OB_RETURN_IF_ERROR(signing::CheckHead(head));
  for (const auto& [entries, seen] : seen_) {
    OB_RETURN_IF_ERROR(signing::CheckHead(seen));
    if (seen.key() != head.key())
      return absl::DataLossError(absl::StrCat(
          "the gateway signs with another key than at ", ToString(WallTime{seen.at_unix_ms()})));
    if (seen.account() != head.account())
      return absl::DataLossError("a head that was kept is of another account");
    if (entries > chain_.entries)
      return absl::DataLossError(absl::StrCat(
          "the end is cut: the gateway signed ", entries, " entries at ",
          ToString(WallTime{seen.at_unix_ms()}), ", the invoice has ", chain_.entries));
  }
  if (head.entries() != chain_.entries || head.account_hash() != chain_.hash)
    return absl::DataLossError("the signed head is not that of the entries");
  if (charged_ != 0 && charged_ != head.account())
    return absl::DataLossError("the invoice is of another account than its head");
  for (const auto& [device, leased] : leased_) {
    if (!HoldsDevice(leased.use)) continue;
    ++report_.leases;
    const auto receipt = usable_ms_.find(device);
    if (receipt == usable_ms_.end()) continue;
    ++report_.leases_receipted;
    if (leased.to_ms > receipt->second + kReceiptSlackMs)
      return absl::DataLossError(absl::StrCat(NameOf(device), ": ", leased.to_ms,
                                              " ms are charged, and its worker signed for ",
                                              receipt->second));
  }
  report_.balance = balances_[head.account()];
  return report_;
}

}  // namespace outboard::gateway
