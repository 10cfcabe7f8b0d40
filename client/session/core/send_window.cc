// Invariants
//   SW1 marks_ are of items beyond done_seq_, in rising order, at most kMarksMax.
//   SW2 The window never is below kItemsMin, except while probing: then it is one at least.
//   SW3 A rate is taken over a round trip at least, from the Done before an item left, or from its
//       leaving where nothing was in flight.
#include "client/session/core/send_window.h"

#include <algorithm>
#include <cmath>

namespace outboard::session {

namespace {

using namespace std::chrono_literals;

constexpr uint64_t kItemsFirst = 16;  // until something is known
constexpr uint64_t kItemsMin = 3;     // one runs, one waits for it, one is under way
constexpr uint64_t kItemsMost = uint64_t{1} << 32;
constexpr double kGainGrowing = 2;
constexpr double kGainSteady = 1.25;
constexpr double kGainProbing = 0.75;
constexpr double kProbingLeast = 2;  // with less in flight, one less is a standstill
constexpr double kGrowth = 1.25;
constexpr int kFlatRounds = 3;
// A thread that is not scheduled for so long is nothing unusual.
constexpr double kScheduling_s = 0.005;
constexpr uint64_t kBurstMost = 64;
constexpr SendWindow::Time kMeasureEvery = 10s;
constexpr SendWindow::Time kSurprise = 5ms;  // beyond twice what is expected
constexpr size_t kMarksMax = 256;
constexpr int kMarksInRoundTrip = 32;

double Seconds(SendWindow::Time time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

double SendWindow::rate() const {
  double most = 0;
  for (const Round& round : rounds_) most = std::max(most, round.rate);
  return most;
}

double SendWindow::Product() const { return rate() * Seconds(round_trip_); }

uint64_t SendWindow::items() const {
  const double rate = this->rate();
  if (rate == 0) return kItemsFirst;
  const double product = Product();
  if (probing_) return std::max<uint64_t>(1, static_cast<uint64_t>(kGainProbing * product));
  uint64_t burst = 0;
  for (const Round& round : rounds_) burst = std::max(burst, round.burst);
  const double gain = flat_rounds_ < kFlatRounds ? kGainGrowing : kGainSteady;
  const double items = gain * product + rate * kScheduling_s +
                       std::min(static_cast<double>(burst), product + kBurstMost) + 1;
  return std::clamp(static_cast<uint64_t>(std::min(std::ceil(items), double{kItemsMost})),
                    kItemsMin, kItemsMost);
}

void SendWindow::OnSent(uint64_t seq, uint64_t in_flight, Time now) {
  if (in_flight == 0) done_at_ = now;  // SW3
  full_ |= in_flight + 1 >= items();
  const bool close =
      !marks_.empty() && now - marks_.back().sent_at < round_trip_ / kMarksInRoundTrip;
  if (close || marks_.size() >= kMarksMax) return;
  marks_.push_back({seq, now, in_flight, done_, done_at_});
}

void SendWindow::OnDone(uint64_t seq, Time now) {
  if (seq <= done_seq_) return;
  const uint64_t covered = seq - done_seq_;
  done_seq_ = seq;
  done_ += covered;
  done_at_ = now;
  Round& round = rounds_[round_];
  round.burst = std::max(round.burst, covered - 1);
  bool covers_mark = false;
  for (; !marks_.empty() && marks_.front().seq <= seq; marks_.pop_front()) {
    base_ = marks_.front();
    covers_mark = true;
  }
  if (now > base_.done_at) round.rate = std::max(round.rate, RateSince(base_, now));
  if (!covers_mark) return;
  TakeRoundTrip(base_, now);
  if (base_.seq > round_end_seq_) EndRound();
}

double SendWindow::RateSince(const Mark& mark, Time now) const {
  return static_cast<double>(done_ - mark.done) / Seconds(now - mark.done_at);
}

// A round ends when the first item that left in it is done.
void SendWindow::EndRound() {
  round_end_seq_ = marks_.empty() ? done_seq_ : marks_.back().seq;
  if (!full_) return;
  full_ = false;
  const double rate = this->rate();
  if (rate >= kGrowth * grown_rate_) {
    grown_rate_ = rate;
    flat_rounds_ = 0;
  } else {
    grown_rate_ = std::min(grown_rate_, rate);
    ++flat_rounds_;
  }
  round_ = (round_ + 1) % kRounds;
  rounds_[round_] = {};
}

bool SendWindow::IsClean(const Mark& mark) const {
  return mark.in_flight == 0 ||
         static_cast<double>(mark.in_flight) < std::max(1.0, kGainProbing * Product());
}

void SendWindow::TakeRoundTrip(const Mark& mark, Time now) {
  const Time took = now - mark.sent_at;
  if (took <= Time{0}) return;
  if (round_trip_ == Time{0} || took < round_trip_) {
    // Much less: what there was had a queue in it, and this may have as well.
    probing_ = probing_ && took < round_trip_ * 9 / 10;
    round_trip_ = took;
    measured_at_ = now;
    stale_ = false;
    return;
  }
  if (IsClean(mark) && (stale_ || probing_)) {
    round_trip_ = took;
    measured_at_ = now;
    stale_ = probing_ = false;
    return;
  }
  const double rate = this->rate();
  const double expected_s =
      std::max(Seconds(round_trip_), static_cast<double>(mark.in_flight + 1) / rate);
  const bool surprising = Seconds(took) > 2 * expected_s + Seconds(kSurprise);
  if (surprising && now - measured_at_ > took) {
    // The steps may be other ones too: what is known of them is what was done meanwhile.
    rounds_ = {};
    rounds_[round_].rate = RateSince(mark, now);
    grown_rate_ = 0;
    flat_rounds_ = 0;
    stale_ = probing_ = true;
  } else if (now - measured_at_ > kMeasureEvery && kGainProbing * Product() >= kProbingLeast) {
    stale_ = probing_ = true;
  }
}

void SendWindow::OnRestart(uint64_t seq, Time now) {
  marks_.clear();
  done_seq_ = seq;
  done_at_ = now;
  round_end_seq_ = seq;
  full_ = probing_ = false;
  stale_ = true;
}

}  // namespace outboard::session
