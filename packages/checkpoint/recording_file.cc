// Recordings as files: a line that says what they are, a checksum, and CBOR.
#include "recording_file.h"

#include <tuple>

namespace postern::internal::recordings {

namespace {

using file::exactly, file::parse_type;

/// The members in the order of the file, which has a list for each firing.
constexpr auto members = [] {
  using F = RecordedFiring;
  return std::tuple(&F::run, &F::site, &F::kind, &F::name, &F::device, &F::element, &F::operands,
                    &F::types, &F::values, &F::failure, &F::ended);
}();

template <class T>
CborJson cbor_of(const T& v) {
  return v;
}
CborJson cbor_of(const std::vector<Type>& types) {
  CborJson out = CborJson::array();
  for (const Type& t : types) out.push_back(to_string(t));
  return out;
}
CborJson cbor_of(const std::vector<std::string>& values) {
  CborJson out = CborJson::array();
  for (const std::string& v : values) out.push_back(CborJson::binary({v.begin(), v.end()}));
  return out;
}

template <class T>
void read_cbor(const CborJson& json, T& v) {
  v = exactly<T>(json);
}
void read_cbor(const CborJson& json, std::vector<Type>& types) {
  for (const CborJson& t : json) types.push_back(parse_type(t.get<std::string>()));
}
void read_cbor(const CborJson& json, std::vector<std::string>& values) {
  for (const CborJson& v : json) values.emplace_back(v.get_binary().begin(), v.get_binary().end());
}

}  // namespace

CborJson json_of(const RecordedFiring& firing) {
  CborJson out = CborJson::array();
  std::apply([&](auto... member) { (out.push_back(cbor_of(firing.*member)), ...); }, members);
  return out;
}

RecordedFiring firing_from(const CborJson& j) {
  RecordedFiring f;
  std::size_t next = 0;
  std::apply([&](auto... member) { (read_cbor(j.at(next++), f.*member), ...); }, members);
  const bool gave_nothing = f.values.empty() && (!f.failure.empty() || f.ended);
  bool fits = gave_nothing || f.values.size() == f.types.size();
  for (std::size_t i = 0; i < f.values.size() && fits; ++i) {
    fits = f.values[i].size() == f.types[i].byte_size();
    if (f.types[i].dtype == DType::pred)
      for (char& byte : f.values[i]) byte = byte != 0;  // any other value would be no bool
  }
  if (!fits)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("values of '{}' are not of their types", f.name));
  return f;
}

bool is_plain_cbor(std::string_view body) {
  constexpr std::size_t levels = 8;
  std::vector<std::uint64_t> left{1};  // items to come, for each level
  while (!left.empty()) {
    if (left.back() == 0) {
      left.pop_back();
      continue;
    }
    --left.back();
    if (body.empty()) return false;
    const auto first = static_cast<unsigned char>(body[0]);
    const unsigned kind = first >> 5, about = first & 31;
    if (about >= 28) return false;  // of a length that is not known, or none
    const std::size_t more = about < 24 ? 0 : std::size_t{1} << (about - 24);
    if (body.size() <= more) return false;
    std::uint64_t number = more > 0 ? 0 : about;
    for (std::size_t i = 0; i < more; ++i)
      number = number << 8 | static_cast<unsigned char>(body[1 + i]);
    body.remove_prefix(1 + more);
    if (kind == 2 || kind == 3) {  // bytes, text
      if (number > body.size()) return false;
      body.remove_prefix(static_cast<std::size_t>(number));
    } else if (kind == 4 || kind == 5) {  // a list, a map
      if (left.size() >= levels || number > body.size()) return false;
      left.push_back(kind == 5 ? 2 * number : number);
    } else if (kind == 6) {  // a tag
      return false;
    }
  }
  return body.empty();
}

}  // namespace postern::internal::recordings

namespace postern {
using namespace internal;

namespace {

using namespace recordings;

constexpr std::string_view recording_line = "postern recording 1\n";

std::string file_text(const NewRecording& recording) {
  CborJson firings = CborJson::array();
  for (const RecordedFiring& f : recording.firings()) firings.push_back(json_of(f));
  std::string body;
  CborJson::to_cbor({{"programs", recording.programs()}, {"firings", firings}}, body);
  return sealed(recording_line, body);
}

struct Contents {
  std::vector<std::string> programs;
  std::vector<RecordedFiring> firings;
};

Contents contents_of(JournalPast past) {
  Contents out{std::move(past.programs), {}};
  for (JournalCall& c : past.calls) out.firings.push_back(std::move(c.call));
  return out;
}

// The format's line, the checksum of all that follows it, and CBOR. The checksum and the form of
// the CBOR are checked before a library parses it; then that each value has the bytes of its type.
Contents contents_of(std::string_view text) {
  auto refuse = [](ErrorCode code, const char* why) { throw Error(code, why); };
  if (!text.starts_with(recording_line))
    refuse(ErrorCode::invalid_argument, "this is no recording of this version");
  const std::optional<std::string_view> body = unsealed(text, recording_line.size());
  if (!body) refuse(ErrorCode::data_loss, "its checksum does not fit: it was changed or cut short");
  if (!is_plain_cbor(*body))
    refuse(ErrorCode::invalid_argument, "what it holds is no recording: it is cut or nested");
  Contents out;
  const CborJson json = CborJson::from_cbor(*body);
  out.programs = json.at("programs").get<std::vector<std::string>>();
  for (const CborJson& j : json.at("firings")) out.firings.push_back(firing_from(j));
  return out;
}

/// Throws an Error that names the file: data_loss if it was changed, else invalid_argument.
Contents read(const std::filesystem::path& path) {
  const std::string text = host::read_file("replay", path.string());
  auto refuse = [&](ErrorCode code, const char* why) {
    throw Error(code, fmt::format("replay: {}: {}", path.string(), why));
  };
  try {
    if (is_journal(text)) return contents_of(read_journal(text).past);
    return contents_of(text);
  } catch (const CborJson::exception& e) {
    refuse(ErrorCode::invalid_argument, e.what());
  } catch (const Error& e) {
    refuse(e.code(), e.what());
  }
  return {};
}

}  // namespace

Taping::Taping(std::shared_ptr<Recording> recording, std::filesystem::path file)
    : recording_(std::move(recording)), file_(std::move(file)) {
  host::observe_runs(recording_);
}
Taping::Taping(Taping&& other) noexcept
    : recording_(std::move(other.recording_)), file_(std::move(other.file_)) {}

void Taping::close() {
  if (!recording_) return;
  host::observe_runs(nullptr);
  const std::shared_ptr<Recording> recording = std::move(recording_);
  recording->close();
  if (const auto* made = dynamic_cast<const NewRecording*>(recording.get()))
    host::write_text_file("record", file_.string(), file_text(*made));
}

Taping::~Taping() {
  try {
    close();
  } catch (const std::exception& e) {
    log(LogLevel::warning, "{}", e.what());
  }
}

Taping record(const std::filesystem::path& file, const RecordingOptions& options) {
  if (!options.resumable) return {std::make_shared<NewRecording>(), file};
  return {std::make_shared<Journal>(file), file};
}

Taping replay(const std::filesystem::path& file) {
  Contents contents = read(file);
  return {std::make_shared<Replay>(std::move(contents.programs), std::move(contents.firings)),
          file};
}

std::vector<RecordedFiring> read_recording(const std::filesystem::path& file) {
  return read(file).firings;
}

}  // namespace postern
