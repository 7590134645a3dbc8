// The wall: what packages see of Postern beside the public headers. What stands here includes
// public headers and what stands here alone, knows nothing of how programs are made, and marks what
// the library shows of it (scripts/rooms, scripts/symbols).
#pragma once
#include "cluster/rank.h"
#include "core/check.h"
#include "core/instances.h"
#include "core/known_programs.h"
#include "core/lines.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/text.h"
#include "file/import.h"
#include "host/background.h"
#include "host/executor.h"
#include "host/handler.h"
#include "host/listening.h"
#include "host/text_file.h"
#include "host/this_process.h"
#include "host/timeline.h"
#include "listen/stats.h"
#include "listen/summary.h"
#include "print/print_text.h"
#include "run/live_page.h"
