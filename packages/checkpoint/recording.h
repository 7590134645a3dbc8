// Recordings: what host functions gave, kept by an observer of the runs, or given in their place.
//
// An invocation is known by its run's number in the recording, its site's number in the program,
// its device and its element of a batch; those that agree in all follow each other in their own
// order. So a replay does not depend on which device or element came first. What a call was given
// is kept as a digest, what it gave, or a tap was given, in full.
#pragma once
#include <postern/record.h>

#include <deque>
#include <map>
#include <tuple>

#include "spi.h"

namespace postern::internal::recordings {

class Recording : public host::RunObserver {
 public:
  /// Closes it: nothing is recorded from here on.
  void close();

  const std::vector<std::string>& programs() const { return programs_; }

  bool enter(host::ObservedInvocation& i) final;

 protected:
  using Key =
      std::tuple<std::uint64_t, std::int64_t, int, std::int64_t>;  // run, site, device, element
  static Key key_of(const host::ObservedInvocation& i) {
    return {i.run, i.site, i.device, i.element};
  }
  static Key key_of(const RecordedFiring& f) { return {f.run, f.site, f.device, f.element}; }
  /// Returns what is kept of an invocation that has been entered, or (of an asynchronous tap) will
  /// be. `went_well`: else the run has failed, or been ended.
  static RecordedFiring firing_of(const host::ObservedInvocation& i, bool went_well);
  /// Gives what `recorded` gave, if the operands are equal and it did not fail; `where`: the call.
  static bool give(const RecordedFiring& recorded, host::ObservedInvocation& i,
                   const std::string& where);

  /// Enters the invocation, or gives its results, where its data can be read.
  virtual bool record_or_give(host::ObservedInvocation& i) = 0;

  Mutex guard_;
  bool closed_ = false;
  std::uint64_t runs_ = 0;
  std::vector<std::string> programs_;  // of the runs: digests
};

/// Keeps all invocations, to be written when it is closed.
class NewRecording final : public Recording {
 public:
  std::uint64_t begin_run(std::string_view program) override;
  const std::vector<RecordedFiring>& firings() const { return firings_; }

 protected:
  bool record_or_give(host::ObservedInvocation& i) override;

 private:
  std::vector<RecordedFiring> firings_;
};

/// Gives calls what was recorded; functions are not entered.
class Replay final : public Recording {
 public:
  Replay(std::vector<std::string> programs, std::vector<RecordedFiring> firings);
  std::uint64_t begin_run(std::string_view program) override;
  bool enters_functions() const override { return false; }

 protected:
  bool record_or_give(host::ObservedInvocation& i) override;

 private:
  const std::vector<RecordedFiring> firings_;
  std::map<Key, std::deque<const RecordedFiring*>> next_;
  std::map<Key, std::uint64_t> replayed_;
};

/// Returns "call 3 of run 0, element 2", for errors.
std::string call_text(const host::ObservedInvocation& i, std::uint64_t number);

}  // namespace postern::internal::recordings
