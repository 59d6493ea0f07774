/* What systemd itself costs: a client of libsystemd that knows its calls in advance.
 *
 *     floor create WORK         start the units of a work file, 32 calls in flight
 *     floor list PATTERN…       one ListUnitsByPatterns
 *     floor read NAMES PATTERN… the same, then Properties.GetAll of every slice, 32 in flight;
 *                               NAMES are the properties that are wanted, with commas
 *
 * A work file has one item in a line, with tabs between its fields:
 *
 *     unit  NAME                    a unit to start; what follows is about it
 *     set   PROPERTY  TYPE  VALUE…  one of its properties; an array has a field for each element
 *     wait                          go on when all that was started so far is up
 *
 * The last line of what it prints is one JSON object with milliseconds.
 *
 *     cc -O2 -Wall -Wextra -o floor floor.c -lsystemd
 */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <time.h>

#define SYSTEMD "org.freedesktop.systemd1"
#define MANAGER_PATH "/org/freedesktop/systemd1"
#define MANAGER SYSTEMD ".Manager"
#define PROPERTIES "org.freedesktop.DBus.Properties"
#define JOB_PREFIX MANAGER_PATH "/job/"
#define IN_FLIGHT 32
#define MAX_FIELDS 64

static sd_bus *bus;

static void die(const char *what, int error) {
        fprintf(stderr, "floor: %s: %s\n", what, strerror(abs(error)));
        exit(1);
}

static void check(int result, const char *what) {
        if (result < 0)
                die(what, result);
}

static double now_ms(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return 1e3 * now.tv_sec + now.tv_nsec / 1e6;
}

static void *grown(void *array, size_t items, size_t size) {
        void *larger = realloc(array, items * size);

        if (!larger)
                die("memory", ENOMEM);
        return larger;
}

static void run_bus(void) {
        int done = sd_bus_process(bus, NULL);

        check(done, "the bus");
        if (done == 0)
                check(sd_bus_wait(bus, UINT64_MAX), "waiting for the bus");
}

/* Jobs: which are ours, and which have ended. A job may end before the reply that names it is read. */

enum { ASKED = 1, REMOVED = 2 };

static unsigned char *jobs;
static size_t n_jobs;
static unsigned calls_in_flight, jobs_open;

static void note_job(const char *path, unsigned char event) {
        size_t id = strtoul(path + strlen(JOB_PREFIX), NULL, 10);

        if (id >= n_jobs) {
                size_t larger = 2 * id + 1024;

                jobs = grown(jobs, larger, 1);
                memset(jobs + n_jobs, 0, larger - n_jobs);
                n_jobs = larger;
        }
        jobs[id] |= event;
        if (event == ASKED)
                jobs_open++;
        if (jobs[id] == (ASKED | REMOVED))
                jobs_open--;
}

static int on_job_removed(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *path, *unit, *result;
        uint32_t id;

        (void) userdata, (void) error;
        check(sd_bus_message_read(m, "uoss", &id, &path, &unit, &result), "JobRemoved");
        if (strcmp(result, "done") != 0) {
                fprintf(stderr, "floor: %s: %s\n", unit, result);
                exit(1);
        }
        note_job(path, REMOVED);
        return 0;
}

static int on_started(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const sd_bus_error *refused = sd_bus_message_get_error(m);
        const char *path;

        (void) userdata, (void) error;
        if (refused) {
                fprintf(stderr, "floor: %s\n", refused->message);
                exit(1);
        }
        check(sd_bus_message_read(m, "o", &path), "the reply");
        calls_in_flight--;
        note_job(path, ASKED);
        return 0;
}

/* Work. */

static void append_value(sd_bus_message *m, const char *type, char **values, int count) {
        check(sd_bus_message_open_container(m, 'v', type), "variant");
        if (strcmp(type, "as") == 0) {
                check(sd_bus_message_open_container(m, 'a', "s"), "array");
                for (int i = 0; i < count; i++)
                        check(sd_bus_message_append(m, "s", values[i]), values[i]);
                check(sd_bus_message_close_container(m), "array");
        } else if (strcmp(type, "s") == 0)
                check(sd_bus_message_append(m, "s", values[0]), values[0]);
        else if (strcmp(type, "b") == 0)
                check(sd_bus_message_append(m, "b", atoi(values[0])), values[0]);
        else if (strcmp(type, "u") == 0)
                check(sd_bus_message_append(m, "u", (uint32_t) strtoul(values[0], NULL, 10)), values[0]);
        else if (strcmp(type, "t") == 0)
                check(sd_bus_message_append(m, "t", (uint64_t) strtoull(values[0], NULL, 10)), values[0]);
        else
                die(type, ENOTSUP);
        check(sd_bus_message_close_container(m), "variant");
}

static sd_bus_message *begin_unit(const char *name) {
        sd_bus_message *m;

        check(sd_bus_message_new_method_call(bus, &m, SYSTEMD, MANAGER_PATH, MANAGER, "StartTransientUnit"),
              "message");
        check(sd_bus_message_append(m, "ss", name, "replace"), name);
        check(sd_bus_message_open_container(m, 'a', "(sv)"), "array");
        return m;
}

static void add_property(sd_bus_message *m, char **fields, int count) {
        check(sd_bus_message_open_container(m, 'r', "sv"), "struct");
        check(sd_bus_message_append(m, "s", fields[1]), fields[1]);
        append_value(m, fields[2], fields + 3, count - 3);
        check(sd_bus_message_close_container(m), "struct");
}

static sd_bus_message *send_unit(sd_bus_message *m) {
        if (!m)
                return NULL;
        check(sd_bus_message_close_container(m), "array");
        check(sd_bus_message_append(m, "a(sa(sv))", 0), "auxiliary units");
        while (calls_in_flight >= IN_FLIGHT)
                run_bus();
        check(sd_bus_call_async(bus, NULL, m, on_started, NULL, 0), "StartTransientUnit");
        calls_in_flight++;
        sd_bus_message_unref(m);
        return NULL;
}

static int split(char *line, char **fields) {
        int count = 0;

        line[strcspn(line, "\n")] = 0;
        while (line && count < MAX_FIELDS)
                fields[count++] = strsep(&line, "\t");
        return count;
}

static void create(const char *path) {
        FILE *work = fopen(path, "re");
        char *fields[MAX_FIELDS], *line = NULL;
        sd_bus_message *m = NULL;
        size_t size = 0, units = 0;
        double began = now_ms();

        if (!work)
                die(path, errno);
        /* without Subscribe: systemd announces the end of our own jobs anyhow */
        check(sd_bus_match_signal(bus, NULL, SYSTEMD, MANAGER_PATH, MANAGER, "JobRemoved", on_job_removed, NULL),
              "match");
        while (getline(&line, &size, work) >= 0) {
                int count = split(line, fields);

                if (strcmp(fields[0], "set") == 0) {
                        add_property(m, fields, count);
                        continue;
                }
                m = send_unit(m);
                if (strcmp(fields[0], "unit") == 0) {
                        m = begin_unit(fields[1]);
                        units++;
                } else
                        while (calls_in_flight || jobs_open)
                                run_bus();
        }
        send_unit(m);
        while (calls_in_flight || jobs_open)
                run_bus();
        printf("{\"units\": %zu, \"ms\": %.3f}\n", units, now_ms() - began);
        free(line);
        fclose(work);
}

/* Reading. */

static char **paths;
static size_t n_paths;

static void list(char **patterns) {
        sd_bus_message *m, *reply;
        const char *name, *path;

        check(sd_bus_message_new_method_call(bus, &m, SYSTEMD, MANAGER_PATH, MANAGER, "ListUnitsByPatterns"),
              "message");
        check(sd_bus_message_append(m, "as", 0), "states");
        check(sd_bus_message_append_strv(m, patterns), "patterns");
        check(sd_bus_call(bus, m, 0, NULL, &reply), "ListUnitsByPatterns");
        check(sd_bus_message_enter_container(reply, 'a', "(ssssssouso)"), "units");
        while (sd_bus_message_read(reply, "(ssssssouso)", &name, NULL, NULL, NULL, NULL, NULL, &path, NULL, NULL,
                                   NULL) > 0) {
                paths = grown(paths, n_paths + 1, sizeof(char *));
                paths[n_paths++] = strdup(path);
        }
        sd_bus_message_unref(m);
        sd_bus_message_unref(reply);
}

static char *wanted[MAX_FIELDS];
static int n_wanted;
static size_t values_read;

static bool is_wanted(const char *name) {
        for (int i = 0; i < n_wanted; i++)
                if (strcmp(wanted[i], name) == 0)
                        return true;
        return false;
}

static void read_value(sd_bus_message *m) {
        const char *type;
        char kind;

        check(sd_bus_message_peek_type(m, &kind, &type), "type");
        if (strcmp(type, "t") == 0 || strcmp(type, "u") == 0 || strcmp(type, "b") == 0 || strcmp(type, "s") == 0) {
                union {
                        uint64_t number;
                        const char *text;
                } value;

                check(sd_bus_message_read(m, "v", type, &value), "value");
                values_read++;
        } else
                check(sd_bus_message_skip(m, "v"), "value");
}

static int on_properties(sd_bus_message *m, void *userdata, sd_bus_error *error) {
        const char *name;

        (void) userdata, (void) error;
        calls_in_flight--;
        check(sd_bus_message_enter_container(m, 'a', "{sv}"), "properties");
        while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
                check(sd_bus_message_read(m, "s", &name), "name");
                if (is_wanted(name))
                        read_value(m);
                else
                        check(sd_bus_message_skip(m, "v"), name);
                check(sd_bus_message_exit_container(m), name);
        }
        return 0;
}

static void read_all(char *names, char **patterns) {
        double began = now_ms(), listed;

        while (names && n_wanted < MAX_FIELDS)
                wanted[n_wanted++] = strsep(&names, ",");
        list(patterns);
        listed = now_ms();
        for (size_t i = 0; n_wanted && i < n_paths; i++) {
                while (calls_in_flight >= IN_FLIGHT)
                        run_bus();
                check(sd_bus_call_method_async(bus, NULL, SYSTEMD, paths[i], PROPERTIES, "GetAll", on_properties,
                                               NULL, "s", SYSTEMD ".Slice"),
                      paths[i]);
                calls_in_flight++;
        }
        while (calls_in_flight)
                run_bus();
        printf("{\"units\": %zu, \"values\": %zu, \"list_ms\": %.3f, \"read_ms\": %.3f}\n", n_paths, values_read,
               listed - began, now_ms() - listed);
}

int main(int argc, char **argv) {
        check(sd_bus_open_system(&bus), "the system bus");
        if (argc == 3 && strcmp(argv[1], "create") == 0)
                create(argv[2]);
        else if (argc > 2 && strcmp(argv[1], "list") == 0)
                read_all(NULL, argv + 2);
        else if (argc > 3 && strcmp(argv[1], "read") == 0)
                read_all(argv[2], argv + 3);
        else
                die("create WORK | list PATTERN... | read NAMES PATTERN...", EINVAL);
        sd_bus_flush_close_unref(bus);
        return 0;
}
