#include "gateway/accounts/usage_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace outboard::gateway {
namespace {

// UsagePage::next as text: the last entry that counts, and the last session that was read.
struct Place {
  int64_t last_entry = 0;
  SessionPlace session;
};

std::string ToText(const Place& place) {
  return absl::StrCat(place.last_entry, ",", place.session.opened_at.unix_ms, ",",
                      place.session.session.Hex());
}

absl::StatusOr<Place> PlaceFrom(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  Place place;
  if (parts.size() == 3 && absl::SimpleAtoi(parts[0], &place.last_entry) &&
      absl::SimpleAtoi(parts[1], &place.session.opened_at.unix_ms)) {
    if (const auto session = SessionId::FromHex(parts[2]); session.has_value()) {
      place.session.session = *session;
      return place;
    }
  }
  return absl::InvalidArgumentError("usage: after is not the next of a reply");
}

// `charged` bounds the use from below: each millisecond charged was of one of the devices.
SessionUsage LineOf(const SessionTimes& times, const Usage& charged, WallTime since) {
  int64_t at_least_ms = 0;
  if (times.devices > 0 && times.opened_at >= since) {
    at_least_ms = (charged.device_ms + times.devices - 1) / times.devices;
  }
  return SessionUsage{.session = times.session,
                      .began_at = times.opened_at,
                      .open = !times.ended,
                      .devices = times.devices,
                      .used_ms = std::max(times.held_ms, at_least_ms),
                      // Shorter than what was charged: the wall clock was set back.
                      .used_at_least = times.end_unknown || times.held_ms < at_least_ms,
                      .charged = charged};
}

// As ToString, without the currency sign: for a program that parses decimals.
std::string Decimal(MicroUsd amount) {
  std::string text = ToString(amount);
  text.erase(text.find('$'), 1);
  return text;
}

std::string Seconds(int64_t ms) {
  const int64_t magnitude = ms < 0 ? -ms : ms;
  return absl::StrFormat("%s%d.%03d", ms < 0 ? "-" : "", magnitude / 1000, magnitude % 1000);
}

std::string Row(std::string_view session, std::string_view began, std::string_view used,
                std::string_view devices, std::string_view charged, std::string_view amount,
                std::string_view state = "") {
  return absl::StrFormat("%-32s  %-20s  %10s  %7s  %10s  %11s%s\n", session, began, used, devices,
                         charged, amount, state);
}

std::string TableLine(const SessionUsage& row) {
  const std::string used = row.used_ms.has_value()
                               ? absl::StrCat(row.used_at_least ? ">=" : "", Seconds(*row.used_ms))
                               : "-";
  return Row(row.session.Hex(), ToString(row.began_at), used, absl::StrCat(row.devices),
             Seconds(row.charged.device_ms), ToString(row.charged.amount),
             row.open ? "  open" : "");
}

// No value needs escaping: hex digits, numbers and time stamps.
std::string JsonOf(const SessionUsage& row) {
  return absl::StrCat(
      "{\"session\": \"", row.session.Hex(), "\", \"began_at\": \"", ToString(row.began_at),
      "\", \"open\": ", row.open ? "true" : "false", ", \"devices\": ", row.devices,
      ", \"used_seconds\": ", row.used_ms.has_value() ? Seconds(*row.used_ms) : "null",
      ", \"used_at_least\": ", row.used_at_least ? "true" : "false",
      ", \"device_seconds\": ", Seconds(row.charged.device_ms),
      ", \"amount_micro_usd\": ", row.charged.amount.value, ", \"amount_usd\": \"",
      Decimal(row.charged.amount), "\"}");
}

}  // namespace

absl::StatusOr<std::unique_ptr<UsageReport>> UsageReport::Open(const std::string& path) {
  storage::OpenOptions existing;
  existing.create = false;
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Ledger> ledger, Ledger::Open(path, existing));
  OB_ASSIGN_OR_RETURN(std::unique_ptr<SessionRows> rows, SessionRows::Open(path, existing));
  return std::unique_ptr<UsageReport>(new UsageReport(std::move(ledger), std::move(rows)));
}

absl::StatusOr<UsagePage> UsageReport::Read(const UsageQuery& query) {
  UsagePage page;
  Place place;
  EntryRange entries{.since = query.since};
  if (query.after.empty()) {
    OB_ASSIGN_OR_RETURN(place.last_entry, ledger_->LastEntry());
    entries.last = place.last_entry;
    OB_ASSIGN_OR_RETURN(page.total, query.tenant.has_value()
                                        ? ledger_->UsageOf(*query.tenant, entries)
                                        : ledger_->UsageOfAll(entries));
  } else {
    OB_ASSIGN_OR_RETURN(place, PlaceFrom(query.after));
    entries.last = place.last_entry;
  }
  OB_ASSIGN_OR_RETURN(const SessionTimesPage times,
                      rows_->ListTimes({.tenant = query.tenant,
                                        .since = query.since,
                                        .now = query.now,
                                        .after = place.session,
                                        .limit = kUsageSessionsPerPage}));
  std::vector<SessionId> ids;
  for (const SessionTimes& session : times.sessions) ids.push_back(session.session);
  OB_ASSIGN_OR_RETURN(const std::vector<Usage> charged, ledger_->UsageOfSessions(ids, entries));
  for (size_t i = 0; i < ids.size(); ++i)
    page.sessions.push_back(LineOf(times.sessions[i], charged[i], query.since));
  if (times.next.has_value()) page.next = ToText({place.last_entry, *times.next});
  return page;
}

std::string UsageText::Add(const UsagePage& page) {
  if (page.total.has_value()) total_ = *page.total;
  std::string out;
  if (!std::exchange(begun_, true))
    out = json_ ? "{\"sessions\": ["
                : Row("session", "began", "used s", "devices", "charged s", "amount");
  for (const SessionUsage& row : page.sessions) {
    listed_.device_ms += row.charged.device_ms;
    listed_.amount.value += row.charged.amount.value;
    const bool first = sessions_++ == 0;
    absl::StrAppend(&out, json_ && !first ? ", " : "", json_ ? JsonOf(row) : TableLine(row));
  }
  return out;
}

std::string UsageText::End() {
  const Usage others{total_.device_ms - listed_.device_ms,
                     {total_.amount.value - listed_.amount.value}};
  const bool has_others = others != Usage{};
  if (!json_) {
    return absl::StrCat(
        has_others ? Row("(others)", "", "", "", Seconds(others.device_ms),
                         ToString(others.amount))
                   : "",
        Row("total", "", "", "", Seconds(total_.device_ms), ToString(total_.amount)));
  }
  return absl::StrCat(
      "], ",
      has_others ? absl::StrCat("\"other_device_seconds\": ", Seconds(others.device_ms),
                                ", \"other_amount_micro_usd\": ", others.amount.value, ", ")
                 : "",
      "\"device_seconds\": ", Seconds(total_.device_ms),
      ", \"amount_micro_usd\": ", total_.amount.value, ", \"amount_usd\": \"",
      Decimal(total_.amount), "\"}\n");
}

}  // namespace outboard::gateway
