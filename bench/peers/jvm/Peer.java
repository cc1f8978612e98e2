import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;
import org.mariadb.jdbc.MariaDbPoolDataSource;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbc.JdbcLockProvider;

/**
 * Uses one of the JVM's lock libraries the way its own documentation shows, so that it can be measured beside lockrun.
 *
 * <pre>
 * Peer LIBRARY ADDRESS TTL-MS run KEY COMMAND...     runs a command under the lock; 75 where it is held
 * Peer LIBRARY ADDRESS TTL-MS wait KEY COMMAND...    the same, but says "waiting" and waits for the lock
 * Peer LIBRARY ADDRESS TTL-MS ops THREADS MS ROUNDS  prints the leases a second of each round, each thread on its own key
 * Peer LIBRARY ADDRESS TTL-MS cycles N               takes one lock and gives it back N times
 * Peer LIBRARY ADDRESS TTL-MS handover ROUNDS        prints the microseconds from each release to the waiter's lock
 * </pre>
 */
public final class Peer {
    /** A lock that a thread takes and gives back. */
    interface Lock {
        boolean take(boolean wait) throws Exception;

        void free() throws Exception;
    }

    /** A connected library. */
    interface Library extends AutoCloseable {
        Lock lock(String key);
    }

    public static void main(String[] args) {
        try {
            System.exit(perform(args));
        } catch (Throwable e) {
            fail(e);
        }
    }

    /** Says in one line what is wrong, and ends whatever threads there are. */
    private static void fail(Throwable e) {
        StringBuilder text = new StringBuilder(e.toString());
        for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause()) {
            text.append(": ").append(cause);
        }
        System.err.println(text.toString().replace('\n', ' '));
        Runtime.getRuntime().halt(1);
    }

    private static int perform(String[] args) throws Exception {
        long ttl = Long.parseLong(args[2]);
        int code;
        try (Library library = connect(args[0], args[1], ttl, args[3].equals("ops") ? 100 : args[3].equals("handover") ? 2 : 1)) {
            code = switch (args[3]) {
                case "run", "wait" -> run(library, args[3].equals("wait"), args[4], Arrays.asList(args).subList(5, args.length));
                case "ops" -> ops(library, Integer.parseInt(args[4]), Long.parseLong(args[5]), Integer.parseInt(args[6]));
                case "cycles" -> cycles(library, Integer.parseInt(args[4]));
                case "handover" -> handover(library, Integer.parseInt(args[4]));
                default -> throw new IllegalArgumentException(args[3]);
            };
        }
        return code;
    }

    private static Library connect(String name, String address, long ttl, int connections) throws Exception {
        return switch (name) {
            case "redisson" -> redisson(address, ttl, connections);
            case "shedlock" -> shedlock(address, ttl, connections);
            case "curator" -> curator(address, ttl);
            default -> throw new IllegalArgumentException(name);
        };
    }

    /** Without a lease time, so that Redisson's watchdog renews the lock, as it does by default. */
    private static Library redisson(String address, long ttl, int connections) {
        Config config = new Config().setLockWatchdogTimeout(ttl);
        config.useSingleServer().setAddress("redis://" + address).setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(connections).setSubscriptionConnectionPoolSize(Math.max(connections / 2, 1));
        RedissonClient client = Redisson.create(config);
        return new Library() {
            @Override
            public Lock lock(String key) {
                RLock lock = client.getLock(key);
                return new Lock() {
                    @Override
                    public boolean take(boolean wait) {
                        if (wait) {
                            lock.lock();
                            return true;
                        }
                        return lock.tryLock();
                    }

                    @Override
                    public void free() {
                        lock.unlock();
                    }
                };
            }

            @Override
            public void close() {
                client.shutdown(0, 1, TimeUnit.SECONDS);
            }
        };
    }

    /** ShedLock has nothing that waits. */
    private static Library shedlock(String address, long ttl, int connections) throws Exception {
        MariaDbPoolDataSource source =
                new MariaDbPoolDataSource("jdbc:mariadb://" + address + "&minPoolSize=1&maxPoolSize=" + connections);
        JdbcLockProvider provider = new JdbcLockProvider(source);
        return new Library() {
            @Override
            public Lock lock(String key) {
                return new Lock() {
                    private SimpleLock held;

                    @Override
                    public boolean take(boolean wait) {
                        Optional<SimpleLock> got = provider.lock(
                                new LockConfiguration(Instant.now(), key, Duration.ofMillis(ttl), Duration.ZERO));
                        held = got.orElse(null);
                        return got.isPresent();
                    }

                    @Override
                    public void free() {
                        held.unlock();
                    }
                };
            }

            @Override
            public void close() {
                source.close();
            }
        };
    }

    private static Library curator(String address, long ttl) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(address, (int) ttl, 5000, new RetryOneTime(100));
        client.start();
        return new Library() {
            @Override
            public Lock lock(String key) {
                InterProcessMutex mutex = new InterProcessMutex(client, "/locks/" + key);
                return new Lock() {
                    @Override
                    public boolean take(boolean wait) throws Exception {
                        if (wait) {
                            mutex.acquire();
                            return true;
                        }
                        return mutex.acquire(0, TimeUnit.SECONDS);
                    }

                    @Override
                    public void free() throws Exception {
                        mutex.release();
                    }
                };
            }

            @Override
            public void close() {
                client.close();
            }
        };
    }

    private static int run(Library library, boolean wait, String key, List<String> command) throws Exception {
        Lock lock = library.lock(key);
        if (wait) {
            System.out.println("waiting");
        }
        if (!lock.take(wait)) {
            return 75;
        }
        int code = new ProcessBuilder(command).inheritIO().start().waitFor();
        lock.free();
        return code;
    }

    private static int ops(Library library, int threads, long millis, int rounds) throws Exception {
        spin(library, threads, Math.min(millis, 3000)); // the compiler has seen it by then
        for (int i = 0; i < rounds; i++) {
            System.out.println(spin(library, threads, millis));
        }
        return 0;
    }

    private static int cycles(Library library, int n) throws Exception {
        Lock lock = library.lock("cycles");
        for (int i = 0; i < n; i++) {
            cycle(lock);
        }
        return 0;
    }

    private static long spin(Library library, int threads, long millis) throws Exception {
        AtomicLong leases = new AtomicLong();
        CountDownLatch ready = new CountDownLatch(threads);
        CountDownLatch go = new CountDownLatch(1);
        List<Thread> all = new ArrayList<>();
        AtomicLong end = new AtomicLong();
        for (int i = 0; i < threads; i++) {
            Lock lock = library.lock("ops" + i);
            Thread thread = new Thread(() -> {
                try {
                    cycle(lock); // connects
                    ready.countDown();
                    go.await();
                    while (System.nanoTime() < end.get()) {
                        cycle(lock);
                        leases.incrementAndGet();
                    }
                } catch (Exception e) {
                    fail(e);
                }
            });
            all.add(thread);
            thread.start();
        }
        ready.await();
        long begin = System.nanoTime();
        end.set(begin + TimeUnit.MILLISECONDS.toNanos(millis));
        go.countDown();
        for (Thread thread : all) {
            thread.join();
        }
        return leases.get() * 1_000_000_000L / (System.nanoTime() - begin);
    }

    private static void cycle(Lock lock) throws Exception {
        if (!lock.take(false)) {
            throw new IllegalStateException("a key of one's own is held");
        }
        lock.free();
    }

    private static int handover(Library library, int rounds) throws Exception {
        for (int i = 0; i < rounds; i++) {
            Lock mine = library.lock("handover");
            Lock theirs = library.lock("handover");
            mine.take(true);
            long[] got = new long[1];
            Thread waiter = new Thread(() -> {
                try {
                    theirs.take(true);
                    got[0] = System.nanoTime();
                    theirs.free();
                } catch (Exception e) {
                    fail(e);
                }
            });
            waiter.start();
            Thread.sleep(100);
            long begin = System.nanoTime();
            mine.free();
            waiter.join();
            System.out.println((got[0] - begin) / 1000);
        }
        return 0;
    }
}
