#include "gateway/ledger/entry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sha256.h"

namespace outboard::gateway {
namespace {

// A new field needs a new tag, so that bytes of one layout are never read as another's.
constexpr std::string_view kBodyTag = "outboard.ledger.body.1";
constexpr std::string_view kBodyOfMsTag = "outboard.ledger.body.2";  // ranges in milliseconds
// As that, with the state that is charged, which in the others is RUN.
constexpr std::string_view kBodyOfStateTag = "outboard.ledger.body.3";
constexpr std::string_view kEntryTag = "outboard.ledger.entry.1";

void AppendInt(std::string& out, int64_t value) {
  for (int shift = 56; shift >= 0; shift -= 8)
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> shift));
}

void AppendBytes(std::string& out, std::string_view bytes) {
  AppendInt(out, static_cast<int64_t>(bytes.size()));
  out.append(bytes);
}

std::string HashOf(std::string_view bytes) {
  const Sha256Digest digest = Sha256(bytes);
  return std::string(digest.begin(), digest.end());
}

}  // namespace

LedgerAccount LedgerAccount::Tenant(TenantId id) { return {absl::StrCat("tenant:", id.value)}; }

bool IsAccountName(std::string_view name) {
  if (name == "revenue" || name == "payments" || name == "adjustments") return true;
  constexpr std::string_view kTenant = "tenant:";
  if (!name.starts_with(kTenant)) return false;
  const std::string_view digits = name.substr(kTenant.size());
  if (digits.empty() || digits.size() > 18 || digits.front() == '0') return false;
  return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

absl::Status CheckLines(const std::vector<LedgerLine>& lines) {
  if (lines.size() < 2 || lines.size() > kLinesPerEntryMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("an entry has 2 to ", kLinesPerEntryMax, " lines, this one ", lines.size()));
  }
  MicroUsd sum;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!IsAccountName(lines[i].account.name)) {
      return absl::InvalidArgumentError(absl::StrCat("line ", i, ": there is no such account"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (lines[j].account == lines[i].account) {
        return absl::InvalidArgumentError(
            absl::StrCat("lines ", j, " and ", i, " are both of account ", lines[i].account.name));
      }
    }
    const absl::StatusOr<MicroUsd> next = Add(sum, lines[i].amount);
    if (!next.ok())
      return absl::InvalidArgumentError(absl::StrCat("line ", i, ": ", next.status().message()));
    sum = *next;
  }
  if (sum != MicroUsd{}) {
    return absl::InvalidArgumentError(
        absl::StrCat("lines sum to ", sum.value, " micro-USD, not to zero"));
  }
  return absl::OkStatus();
}

absl::Status CheckCharge(const Charge& charge) {
  if (charge.tenant.value <= 0 || !IsAccountName(LedgerAccount::Tenant(charge.tenant).name)) {
    return absl::InvalidArgumentError(absl::StrCat("charge to account ", charge.tenant.value));
  }
  if (charge.device.lease.grant > static_cast<uint64_t>(INT64_MAX)) {
    return absl::InvalidArgumentError("charge for a grant number of 2^63 or more");
  }
  if (static_cast<int>(charge.use) >= kUseStates)
    return absl::InvalidArgumentError("charge for a state that there is not");
  const absl::Status price = CheckPrice(charge.price_per_hour);
  if (!price.ok()) return absl::InvalidArgumentError(price.message());
  if (charge.from_ms < 0 || charge.to_ms <= charge.from_ms || charge.to_ms > kLeaseMsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("charge for milliseconds [", charge.from_ms, ", ", charge.to_ms,
                     ") of a lease, which are 0 to ", kLeaseMsMax));
  }
  const int64_t due = ChargeAfter(charge.price_per_hour, charge.to_ms).value -
                      ChargeAfter(charge.price_per_hour, charge.from_ms).value;
  if (charge.amount.value != due) {
    return absl::InvalidArgumentError(absl::StrCat("charge of ", charge.amount.value,
                                                   " micro-USD for milliseconds [",
                                                   charge.from_ms, ", ", charge.to_ms,
                                                   "), which cost ", due));
  }
  return absl::OkStatus();
}

absl::Status CheckTransfer(const Transfer& transfer) {
  if (transfer.key.empty() || transfer.key.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("an idempotency key has 1 to ", kNameBytesMax,
                                                   " bytes, this one ", transfer.key.size()));
  }
  if (std::string_view(transfer.key).starts_with(kUseKeyPrefix)) {
    return absl::InvalidArgumentError("idempotency keys that begin with use/ are the meter's");
  }
  if (transfer.memo.size() > kMemoBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a memo may have at most ", kMemoBytesMax,
                                                   " bytes, this one ", transfer.memo.size()));
  }
  return CheckLines(transfer.lines);
}

std::string UseKey(const LeasedDevice& device, int64_t from) {
  return absl::StrCat("use/", device.lease.session.Hex(), "/", device.lease.grant, "/",
                      device.device, "/", from);
}

EntryBody BodyOf(const Charge& charge, int64_t unit_ms) {
  return EntryBody{.key = UseKey(charge.device, charge.from_ms / unit_ms),
                   .lines = {{LedgerAccount::Tenant(charge.tenant), -charge.amount},
                             {LedgerAccount::Revenue(), charge.amount}},
                   .charge = charge,
                   .unit_ms = unit_ms};
}

EntryBody BodyOf(const Transfer& transfer) {
  return EntryBody{.key = transfer.key, .memo = transfer.memo, .lines = transfer.lines};
}

std::string BodyHash(const EntryBody& body) {
  const bool of_ms = body.charge.has_value() && body.unit_ms == 1;
  const bool has_state = of_ms && body.charge->use != UseState::kRun;
  std::string bytes(has_state ? kBodyOfStateTag : of_ms ? kBodyOfMsTag : kBodyTag);
  AppendBytes(bytes, body.key);
  AppendBytes(bytes, body.memo);
  AppendInt(bytes, static_cast<int64_t>(body.lines.size()));
  for (const LedgerLine& line : body.lines) {
    AppendBytes(bytes, line.account.name);
    AppendInt(bytes, line.amount.value);
  }
  AppendInt(bytes, body.charge.has_value() ? 1 : 0);
  if (body.charge.has_value()) {
    const Charge& charge = *body.charge;
    bytes += charge.device.lease.session.Bytes();
    AppendInt(bytes, static_cast<int64_t>(charge.device.lease.grant));
    AppendInt(bytes, charge.device.device);
    AppendInt(bytes, charge.tenant.value);
    AppendInt(bytes, charge.price_per_hour.value);
    AppendInt(bytes, charge.granted_at.unix_ms);
    AppendInt(bytes, charge.from_ms / body.unit_ms);
    AppendInt(bytes, charge.to_ms / body.unit_ms);
    if (has_state) AppendInt(bytes, static_cast<int64_t>(charge.use));
  }
  return HashOf(bytes);
}

std::string EntryHash(std::string_view previous, int64_t number, WallTime at,
                      std::string_view body_hash) {
  OB_CHECK(previous.size() == kHashBytes && body_hash.size() == kHashBytes);
  std::string bytes(kEntryTag);
  bytes += previous;
  AppendInt(bytes, number);
  AppendInt(bytes, at.unix_ms);
  bytes += body_hash;
  return HashOf(bytes);
}

}  // namespace outboard::gateway
