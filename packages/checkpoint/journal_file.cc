// Journals on disk.
#include <zlib.h>

#include <random>
#include <utility>

#include "recording_file.h"

namespace postern::internal::recordings {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view journal_line = "postern recording 3\n";
constexpr std::size_t name_size = 32, head_size = journal_line.size() + name_size + 1;
constexpr std::size_t piece_head = 12;

[[noreturn]] void refuse(ErrorCode code, const char* why) { throw Error(code, why); }

std::uint32_t sum_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

void put(std::string& out, std::uint32_t number) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>(number >> (8 * i));
}
std::uint32_t number_at(std::string_view text, std::size_t at) {
  std::uint32_t n = 0;
  for (std::size_t i = 4; i-- > 0;) n = n << 8 | static_cast<unsigned char>(text[at + i]);
  return n;
}

std::string piece_of(const CborJson& json) {
  std::string body, out;
  CborJson::to_cbor(json, body);
  check(body.size() <= UINT32_MAX,
        "record: a call's results of {} bytes are too large for a "
        "recording for resume",
        body.size());
  put(out, static_cast<std::uint32_t>(body.size()));
  put(out, sum_of(body));
  put(out, sum_of(out));
  return out + body;
}

CborJson json_of_call(const JournalCall& c) {
  const auto& [call, states] = c;
  CborJson of_states = CborJson::object();
  for (const auto& [name, bytes] : states)
    of_states[name] = CborJson::binary({bytes.begin(), bytes.end()});
  return {json_of(call), std::move(of_states)};
}

/// A run's program is a text, a call a list.
void read_piece(const CborJson& json, JournalPast& out) {
  if (json.is_string()) return out.programs.push_back(json.get<std::string>());
  JournalCall c{firing_from(json.at(0)), {}};
  for (const auto& [name, bytes] : json.at(1).items())
    c.states.emplace_back(name, std::string(bytes.get_binary().begin(), bytes.get_binary().end()));
  out.calls.push_back(std::move(c));
}

/// Returns as many hexadecimal digits as a name has.
std::string random_name() {
  constexpr std::size_t digits_a_draw = 8;
  static_assert(name_size % digits_a_draw == 0);
  std::random_device random;
  std::string name;
  while (name.size() < name_size) name += fmt::format("{:08x}", random());
  return name;
}

}  // namespace

JournalFile::JournalFile(const fs::path& file)
    : path_(file), out_("record", file, formats::AppendFile::Open::continued, "") {}

JournalPast JournalFile::past() {
  if (out_.is_empty()) return {};
  const std::string text = host::read_file("resume", path_.string());
  try {
    const bool is_cut_in_line = journal_line.starts_with(text);
    if (!is_journal(text) && !is_cut_in_line)
      refuse(ErrorCode::invalid_argument,
             "it is no recording that was made for resume, by this version");
    ReadJournal read = read_journal(text);
    name_ = std::move(read.name);
    cut_to_ = read.whole;
    return std::move(read.past);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("resume: {}: {}", one_line(path_.string()), e.what()));
  }
}

void JournalFile::start_anew() {
  name_ = random_name();
  cut_to_.reset();
  out_.cut_to(0);
  out_.append(fmt::format("{}{}\n", journal_line, name_));
}

void JournalFile::begin_run(const std::string& program) { append(piece_of(program)); }
void JournalFile::add(const JournalCall& call) { append(piece_of(json_of_call(call))); }

void JournalFile::append(const std::string& piece) {
  if (cut_to_) out_.cut_to(*std::exchange(cut_to_, std::nullopt));
  out_.append(piece);
}

bool is_journal(std::string_view text) { return text.starts_with(journal_line); }

ReadJournal read_journal(std::string_view text) try {
  ReadJournal out;
  if (text.size() < head_size) return out;  // cut in its first lines
  out.name = text.substr(journal_line.size(), name_size);
  if (text[head_size - 1] != '\n') refuse(ErrorCode::data_loss, "its name was changed");
  out.whole = head_size;
  while (text.size() - out.whole >= piece_head) {
    const auto head = text.substr(out.whole, piece_head);
    const std::size_t begin = out.whole + piece_head, size = number_at(head, 0);
    const bool knows_size = sum_of(head.substr(0, 8)) == number_at(head, 8);
    if (knows_size && size > text.size() - begin) break;
    const std::string_view body = text.substr(begin, size);
    if (!knows_size || sum_of(body) != number_at(head, 4)) {
      // The machine's end, not the process's, may leave zeros.
      if (text.find_first_not_of('\0', out.whole) == std::string_view::npos) break;
      refuse(ErrorCode::data_loss, "a checksum does not fit: it was changed");
    }
    if (!is_plain_cbor(body)) refuse(ErrorCode::invalid_argument, "a piece is cut or nested");
    read_piece(CborJson::from_cbor(body), out.past);
    out.whole = begin + size;
  }
  return out;
} catch (const CborJson::exception& e) {
  refuse(ErrorCode::invalid_argument, e.what());
} catch (const TypeError& e) {
  refuse(ErrorCode::invalid_argument, e.what());
}

}  // namespace postern::internal::recordings
