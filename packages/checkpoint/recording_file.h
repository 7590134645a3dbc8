// What recordings and journals have in common: firings as CBOR.
#pragma once
#include <nlohmann/json.hpp>

#include "journal.h"

namespace postern::internal::recordings {

using CborJson = nlohmann::json;

CborJson json_of(const RecordedFiring& firing);
/// Throws Error(invalid_argument), TypeError or CborJson::exception for what is none.
RecordedFiring firing_from(const CborJson& json);

/// Returns whether `body` is CBOR of the kind that is written here: of known lengths, without tags,
/// and not nested deeper than recordings are. What reads it calls itself for each level.
bool is_plain_cbor(std::string_view body);

/// Returns whether it is a journal's text: a line that says what it is, its name, and pieces: a
/// length, a checksum of the CBOR that follows, and one of both. The last piece may be cut, when
/// its process was killed.
bool is_journal(std::string_view text);
struct ReadJournal {
  std::string name;
  JournalPast past;
  std::size_t whole = 0;  // bytes, without a piece that is cut
};
/// Throws Error: data_loss if it was changed, invalid_argument.
ReadJournal read_journal(std::string_view text);

}  // namespace postern::internal::recordings
