package dev.kraftbridge.agent;

import java.io.IOException;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.lang.management.ManagementFactory;
import java.lang.reflect.InvocationTargetException;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.security.KeyStore;
import java.security.ProtectionDomain;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;
import javax.security.auth.login.AppConfigurationEntry;

/**
 * Java agent of the dry start: reports the configuration that Kafka is given, and never lets Kafka run.
 *
 * <p>Options: the directory that holds the file {@code salt} and takes the results. Every JVM of the copied pod loads the agent:
 *
 * <ul>
 *   <li>without a main class ({@code java -version}): continues, but ends as soon as an application's class is loaded;
 *   <li>{@code kafka.tools.StorageTool}, and {@code kafka.docker.KafkaDockerWrapper setup} of the official image: run, since they only write
 *       configuration files and format directories, all of them the copy's own;
 *   <li>{@code kafka.Kafka}: its configuration is resolved, judged by Kafka's own {@code KafkaConfig} and reported; the JVM ends before {@code main};
 *   <li>everything else: ends with exit code 0 and is listed, since it could reach the cluster.
 * </ul>
 *
 * <p>No failure of the agent lets a program run. Kafka is reached by reflection, so the agent needs nothing but the JDK (8 or newer).
 */
public final class DryStartAgent {
    /** Begins the line with the result, on standard output. */
    static final String RESULT = "kraftbridge-dry-start-result ";
    /** Begins the lines about the other JVMs, on standard error. */
    static final String NOTE = "kraftbridge-dry-start ";

    private static final String LOADED = "dev.kraftbridge.dry-start.loaded";
    private static final String KAFKA = "kafka.Kafka";
    private static final String STORAGE_TOOL = "kafka.tools.StorageTool";
    private static final String DOCKER_WRAPPER = "kafka.docker.KafkaDockerWrapper";
    /** Settings of Kafka's own authorizers: {@code KafkaConfig} does not define them, so it calls them sensitive; they hold names of principals and a flag. */
    private static final List<String> OF_AUTHORIZERS = Arrays.asList("super.users", "allow.everyone.if.no.acl.found");
    private static final String CONTROLLER_PREFIX = "listener.name.controller.";
    private static final int EXIT_AGENT_FAILED = 97;
    private static final int EXIT_UNNAMED_PROGRAM = 98;
    private static final int TERMINATION_MESSAGE_BYTES = 4096;
    private static final Pattern SECRET_NAME =
            Pattern.compile("(?i)password|passwd|secret|token|credential|jaas|api[-_.]?key|access[-_.]?key|private[-_.]?key|scram");
    private static final Pattern JAAS_ENTRY = Pattern.compile("(?m)^\\s*([\\w.-]+)\\s*\\{");

    private DryStartAgent() {}

    /** Entry point: the JVM calls it before the main class is loaded. */
    public static void premain(String options, Instrumentation instrumentation) {
        if (System.getProperty(LOADED) != null) {
            return; // JAVA_TOOL_OPTIONS and _JAVA_OPTIONS both name the agent
        }
        System.setProperty(LOADED, "true");
        try {
            List<String> command = command();
            Path directory = Paths.get(options == null ? "" : options);
            if (command.isEmpty()) {
                instrumentation.addTransformer(new Watch());
                return;
            }
            byte[] salt = Files.readAllBytes(directory.resolve("salt"));
            if (salt.length == 0) {
                throw new IOException(directory.resolve("salt") + " is empty");
            }
            Report report = new Report(directory, salt);
            String main = command.get(0);
            List<String> arguments = command.subList(1, command.size());
            if (staysInTheCopy(main, arguments)) {
                report.note("ran", main, arguments);
                return;
            }
            if (!main.equals(KAFKA)) {
                report.note("skipped", main, arguments);
                Runtime.getRuntime().halt(0);
            }
            report.publish(report.ofKafka(arguments, instrumentation));
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            System.err.println(NOTE + "{\"event\":\"failed\",\"reason\":" + Json.text(words(error)) + "}");
            System.err.flush();
            Runtime.getRuntime().halt(EXIT_AGENT_FAILED);
        }
    }

    /** Whether a program reaches no further than the copy's own files. The wrapper's other command, {@code start}, calls {@code kafka.Kafka.main}. */
    private static boolean staysInTheCopy(String main, List<String> arguments) {
        return main.equals(STORAGE_TOOL) || (main.equals(DOCKER_WRAPPER) && arguments.subList(0, Math.min(1, arguments.size())).contains("setup"));
    }

    /**
     * Returns the main class and its arguments; empty when the JVM has none.
     *
     * <p>{@code sun.java.command} joins the arguments with spaces. The kernel's own copy keeps them apart; it is used where both agree.
     */
    private static List<String> command() {
        String joined = System.getProperty("sun.java.command", "");
        if (joined.isEmpty()) {
            return Collections.emptyList();
        }
        try {
            String raw = new String(Files.readAllBytes(Paths.get("/proc/self/cmdline")), StandardCharsets.UTF_8);
            List<String> words = Arrays.asList(raw.split("\0", -1));
            int end = raw.endsWith("\0") ? words.size() - 1 : words.size();
            for (int start = 0; start < end; start++) {
                List<String> tail = words.subList(start, end);
                if (String.join(" ", tail).equals(joined)) {
                    return tail;
                }
            }
        } catch (IOException e) {
            // as below
        }
        return Arrays.asList(joined.split(" "));
    }

    private static String words(Throwable error) {
        Throwable deepest = error;
        while (deepest instanceof InvocationTargetException || (deepest.getMessage() == null && deepest.getCause() != null)) {
            deepest = deepest.getCause();
        }
        return deepest.getClass().getName() + ": " + deepest.getMessage();
    }

    /** Ends a JVM that names no main class (a launcher of its own, such as jsvc) as soon as it loads a class that is not the JDK's. */
    private static final class Watch implements ClassFileTransformer {
        @Override
        public byte[] transform(ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] bytes) {
            if (loader != null && name != null && !ofTheJdk(name)) {
                System.err.println(NOTE + "{\"event\":\"skipped\",\"main\":" + Json.text(name.replace('/', '.')) + ",\"arguments\":\"\"}");
                System.err.flush();
                Runtime.getRuntime().halt(EXIT_UNNAMED_PROGRAM);
            }
            return null;
        }

        private static boolean ofTheJdk(String name) {
            return name.startsWith("java/") || name.startsWith("javax/") || name.startsWith("jdk/") || name.startsWith("sun/")
                    || name.startsWith("com/sun/") || name.startsWith("dev/kraftbridge/agent/");
        }
    }

    /** What is reported of this pod's JVMs. */
    static final class Report {
        private final Path directory;
        private final byte[] salt;
        private final ClassLoader loader = ClassLoader.getSystemClassLoader();

        Report(Path directory, byte[] salt) {
            this.directory = directory;
            this.salt = salt;
        }

        /** Lists a JVM that is not Kafka's: for the one that is, and in the log for a pod that never comes to it. */
        void note(String event, String main, List<String> arguments) throws IOException {
            Map<String, Object> note = new LinkedHashMap<>();
            note.put("event", event);
            note.put("main", main);
            note.put("arguments", masked(arguments));
            String line = Json.of(note);
            Files.write(directory.resolve("events"), (line + "\n").getBytes(StandardCharsets.UTF_8),
                    StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            System.err.println(NOTE + line);
            System.err.flush();
        }

        /** Writes the result as one line to the log and, where it has room, as the termination message. */
        void publish(Map<String, Object> result) throws IOException {
            String line = RESULT + Json.of(result);
            System.out.println(line);
            System.out.flush();
            Path termination = Paths.get("/dev/termination-log");
            byte[] bytes = line.getBytes(StandardCharsets.UTF_8);
            if (bytes.length <= TERMINATION_MESSAGE_BYTES && Files.isWritable(termination)) {
                Files.write(termination, bytes);
            }
        }

        Map<String, Object> ofKafka(List<String> arguments, Instrumentation instrumentation) {
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("version", 1);
            result.put("java", System.getProperty("java.version"));
            result.put("arguments", masked(arguments));
            result.put("host", host());
            result.put("events", events());
            result.put("options", options());
            result.put("addressCacheSeconds", addressCacheSeconds(instrumentation));
            result.put("jaas", jaas());
            Properties given = null;
            try {
                result.put("kafka", release());
                given = (Properties) call(KAFKA, "getPropsFromArgs", new Class<?>[] {String[].class}, (Object) arguments.toArray(new String[0]));
                Class<?> type = Class.forName("kafka.server.KafkaConfig", true, loader);
                Object config = type.getMethod("fromProps", Properties.class, boolean.class).invoke(null, given, false);
                result.put("nodeId", type.getMethod(has(type, "nodeId") ? "nodeId" : "brokerId").invoke(config));
                result.put("settings", settings(type, config));
                result.put("directories", directories(type, config));
                List<String> mounted = new ArrayList<>();
                result.put("classes", classes((Map<?, ?>) type.getMethod("originals").invoke(config), mounted));
                result.put("mountedClasses", mounted);
                result.put("refusals", refusals(type, config, result));
                result.put("valid", true);
            } catch (Throwable error) {
                result.put("valid", false);
                result.put("complaint", complaint(words(error), given));
                result.put("settings", given == null ? new TreeMap<String, Object>() : raw(given));
            }
            return result;
        }

        /**
         * Returns every setting that DescribeConfigs would list as static: those given, and those with a given synonym ({@code
         * ConfigHelper}, {@code DynamicBrokerConfig.brokerConfigSynonyms}). Values are spelled as {@code ConfigDef.convertToString} does.
         */
        private Map<String, Object> settings(Class<?> type, Object config) throws ReflectiveOperationException {
            Map<?, ?> given = (Map<?, ?>) type.getMethod("originals").invoke(config);
            Map<?, ?> values = (Map<?, ?>) type.getMethod("values").invoke(config);
            Definitions definitions = new Definitions(type);
            Map<String, Object> settings = new TreeMap<>();
            for (Map.Entry<?, ?> entry : given.entrySet()) {
                String name = String.valueOf(entry.getKey());
                Object found = definitions.of(name);
                boolean sensitive = !OF_AUTHORIZERS.contains(name) && definitions.isSensitive(found);
                if (values.containsKey(name) && !sensitive && definitions.isKnown(found)) {
                    settings.put(name, shown(definitions.spelled(found, values.get(name)), false));
                } else {
                    settings.put(name, shown(String.valueOf(entry.getValue()), sensitive));
                }
            }
            for (Map.Entry<?, ?> entry : values.entrySet()) {
                String name = String.valueOf(entry.getKey());
                if (settings.containsKey(name) || !synonymGiven(name, given)) {
                    continue;
                }
                Object found = definitions.of(name);
                settings.put(name, shown(definitions.spelled(found, entry.getValue()), definitions.isSensitive(found)));
            }
            return settings;
        }

        /** Returns the value in force of every setting, with its type; those included that only listeners or plugins read. */
        Map<String, Object> effective(Class<?> type, Object config) throws ReflectiveOperationException {
            Map<?, ?> given = (Map<?, ?>) type.getMethod("originals").invoke(config);
            Map<?, ?> values = (Map<?, ?>) type.getMethod("values").invoke(config);
            Definitions definitions = new Definitions(type);
            Map<String, Object> settings = new TreeMap<>();
            for (Map.Entry<?, ?> entry : given.entrySet()) {
                String name = String.valueOf(entry.getKey());
                Object found = definitions.of(name);
                settings.put(name, definitions.typed(found, shown(String.valueOf(entry.getValue()), definitions.isSensitive(found))));
            }
            for (Map.Entry<?, ?> entry : values.entrySet()) {
                String name = String.valueOf(entry.getKey());
                Object found = definitions.of(name);
                if (!definitions.isSensitive(found)) {
                    settings.put(name, definitions.typed(found, shown(definitions.spelled(found, entry.getValue()), false)));
                } else if (!given.containsKey(name)) {
                    settings.put(name, definitions.typed(found, shown(null, true)));
                }
            }
            return settings;
        }

        /**
         * What Kafka knows of each setting: {@code KafkaConfig.configType}, an option of {@code ConfigDef.Type}.
         *
         * <p>Before Kafka 2.6 it is the type of the first of its names that is defined ({@code AdminManager.configType}), and one without a type is
         * sensitive.
         */
        private final class Definitions {
            private final Class<?> kafkaConfig;
            private final Class<?> option;
            private final Class<?> valueType;
            private final Class<?> definition;

            Definitions(Class<?> kafkaConfig) throws ReflectiveOperationException {
                this.kafkaConfig = kafkaConfig;
                option = Class.forName("scala.Option", true, loader);
                valueType = Class.forName("org.apache.kafka.common.config.ConfigDef$Type", true, loader);
                definition = Class.forName("org.apache.kafka.common.config.ConfigDef", true, loader);
            }

            Object of(String name) throws ReflectiveOperationException {
                if (has(kafkaConfig, "configType")) {
                    return kafkaConfig.getMethod("configType", String.class).invoke(null, name);
                }
                Object module = Class.forName("kafka.server.KafkaConfig$", true, loader).getField("MODULE$").get(null);
                Object keys = module.getClass().getMethod("configKeys").invoke(module);
                Object type = null;
                List<String> names = new ArrayList<>(Collections.singletonList(name));
                names.addAll(synonyms(name));
                for (String each : names) {
                    Object key = Class.forName("scala.collection.Map", true, loader).getMethod("get", Object.class).invoke(keys, each);
                    if (type == null && isKnown(key)) {
                        Object defined = option.getMethod("get").invoke(key);
                        type = defined.getClass().getField("type").get(defined);
                    }
                }
                return option.getMethod("apply", Object.class).invoke(null, type);
            }

            boolean isSensitive(Object found) throws ReflectiveOperationException {
                if (!has(kafkaConfig, "maybeSensitive")) {
                    return !isKnown(found) || "PASSWORD".equals(option.getMethod("get").invoke(found).toString());
                }
                return (Boolean) kafkaConfig.getMethod("maybeSensitive", option).invoke(null, found);
            }

            boolean isKnown(Object found) throws ReflectiveOperationException {
                return Boolean.TRUE.equals(option.getMethod("isDefined").invoke(found));
            }

            /** Returns a parsed value as {@code ConfigDef.convertToString} spells it, null without one. */
            String spelled(Object found, Object value) throws ReflectiveOperationException {
                Object spelled = value;
                if (isKnown(found)) {
                    spelled = definition.getMethod("convertToString", Object.class, valueType)
                            .invoke(null, value, option.getMethod("get").invoke(found));
                }
                return spelled == null ? null : spelled.toString();
            }

            Map<String, Object> typed(Object found, Map<String, Object> shown) throws ReflectiveOperationException {
                Map<String, Object> typed = new TreeMap<>(shown);
                if (isKnown(found)) {
                    typed.put("type", option.getMethod("get").invoke(found).toString());
                }
                return typed;
            }
        }

        private boolean synonymGiven(String name, Map<?, ?> given) throws ReflectiveOperationException {
            return synonyms(name).stream().anyMatch(given::containsKey);
        }

        /** Returns the names by which a broker reads a setting, the one that wins first. */
        private List<String> synonyms(String name) throws ReflectiveOperationException {
            Class<?> dynamic = named("kafka.server.DynamicBrokerConfig");
            if (!has(dynamic, "brokerConfigSynonyms")) {
                dynamic = named("org.apache.kafka.server.config.DynamicBrokerConfig"); // since Kafka 4.2
            }
            return listed(dynamic.getMethod("brokerConfigSynonyms", String.class, boolean.class).invoke(null, name, true));
        }

        /** Returns the items of a list of Java, or of Scala as releases before Kafka 4.1 return it. */
        private List<String> listed(Object list) throws ReflectiveOperationException {
            List<String> items = new ArrayList<>();
            if (list instanceof Iterable) {
                for (Object item : (Iterable<?>) list) {
                    items.add(String.valueOf(item));
                }
                return items;
            }
            Object joined = named("scala.collection.Seq").getMethod("mkString", String.class).invoke(list, "\n");
            return Arrays.asList(String.valueOf(joined).split("\n"));
        }

        private Class<?> named(String name) throws ClassNotFoundException {
            return Class.forName(name, true, loader);
        }

        /** Returns Kafka's own version. Kafka 4.4 has moved the class that tells it. */
        private String release() throws ReflectiveOperationException {
            String parser = "org.apache.kafka.common.utils.AppInfoParser";
            try {
                named(parser);
            } catch (ClassNotFoundException e) {
                parser = "org.apache.kafka.common.utils.internals.AppInfoParser";
            }
            return String.valueOf(call(parser, "getVersion", new Class<?>[0]));
        }

        private boolean has(Class<?> type, String method) {
            for (java.lang.reflect.Method each : type.getMethods()) {
                if (each.getName().equals(method)) {
                    return true;
                }
            }
            return false;
        }

        /** Returns settings that Kafka refused: whatever is not known to be harmless is hashed. */
        private Map<String, Object> raw(Properties given) {
            Map<String, Object> settings = new TreeMap<>();
            for (String name : given.stringPropertyNames()) {
                boolean sensitive = true;
                try {
                    Class<?> type = Class.forName("kafka.server.KafkaConfig", true, loader);
                    Definitions definitions = new Definitions(type);
                    sensitive = definitions.isSensitive(definitions.of(name));
                } catch (ReflectiveOperationException | LinkageError e) {
                    // another release of Kafka: hashed
                }
                settings.put(name, shown(given.getProperty(name), sensitive));
            }
            return settings;
        }

        private Map<String, Object> directories(Class<?> type, Object config) throws ReflectiveOperationException {
            Object dirs = type.getMethod("logDirs").invoke(config);
            Map<String, Object> found = new TreeMap<>();
            for (String name : listed(dirs)) {
                Map<String, Object> state = new TreeMap<>();
                Path path = Paths.get(name).toAbsolutePath().normalize();
                state.put("exists", Files.isDirectory(path));
                state.put("mount", mountPoint(path));
                Properties properties = new Properties();
                try (java.io.InputStream in = Files.newInputStream(path.resolve("meta.properties"))) {
                    properties.load(in);
                    Map<String, Object> lines = new TreeMap<>();
                    for (String key : properties.stringPropertyNames()) {
                        lines.put(key, properties.getProperty(key));
                    }
                    state.put("metaProperties", lines);
                } catch (IOException e) {
                    // a directory that is not formatted
                }
                found.put(path.toString(), state);
            }
            return found;
        }

        /** Returns where the file system is mounted that a directory is on, or would be made on; empty if that cannot be told. */
        private static String mountPoint(Path directory) {
            try {
                Path existing = directory;
                while (!Files.exists(existing)) {
                    existing = existing.getParent();
                }
                Path real = existing.toRealPath();
                Path point = Paths.get("/");
                for (String line : Files.readAllLines(Paths.get("/proc/self/mountinfo"))) {
                    Path mounted = Paths.get(unescaped(line.split(" ")[4]));
                    if (real.startsWith(mounted) && mounted.getNameCount() >= point.getNameCount()) {
                        point = mounted;
                    }
                }
                return point.toString();
            } catch (IOException | RuntimeException e) {
                return "";
            }
        }

        /** Returns a path as the kernel means it: blanks and backslashes are octal in mountinfo (proc(5)). */
        private static String unescaped(String path) {
            return path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\");
        }

        /**
         * Returns, for each setting that names a class which KafkaConfig does not load itself, whether the class loads.
         *
         * @param mounted gets the settings whose class comes from a volume: another pod with the image lacks it
         */
        private Map<String, Object> classes(Map<?, ?> given, List<String> mounted) {
            Map<String, Object> found = new TreeMap<>();
            for (Object key : given.keySet()) {
                String name = String.valueOf(key);
                String value = String.valueOf(given.get(key)).trim();
                if (!(name.endsWith(".class.name") || name.endsWith(".class")) || value.isEmpty()) {
                    continue;
                }
                boolean loads = true;
                try {
                    if (fromVolume(Class.forName(value, false, loader))) {
                        mounted.add(name);
                    }
                } catch (ClassNotFoundException | LinkageError e) {
                    loads = false;
                }
                found.put(name, loads);
            }
            return found;
        }

        /**
         * Returns why this broker and the controllers' listener would not accept each other; none if they would, or if there is nothing to compare.
         *
         * <p>A broker is a client of that listener with the settings of a server ({@code NodeToControllerChannelManagerImpl}). Kafka's own classes load its
         * stores and its login; the JDK judges the certificates as in a handshake.
         *
         * @param result gets the reason, where nobody but Kafka itself could tell
         */
        private List<Object> refusals(Class<?> type, Object config, Map<String, Object> result) throws IOException, ReflectiveOperationException {
            List<Object> found = new ArrayList<>();
            Properties listener = new Properties();
            Path file = directory.resolve("controllers");
            if (Files.isReadable(file)) {
                try (java.io.InputStream in = Files.newInputStream(file)) {
                    listener.load(in);
                }
            }
            Map<?, ?> own = (Map<?, ?>) type.getMethod("valuesWithPrefixOverride", String.class).invoke(config, CONTROLLER_PREFIX);
            if (listener.getProperty("certificate") != null && own.get("ssl.engine.factory.class") != null) {
                result.put("untried", "ssl.engine.factory.class of the broker names a class that has its certificates");
            } else if (listener.getProperty("certificate") != null) {
                try {
                    certificates(own, listener, found);
                } catch (ClassNotFoundException e) {
                    result.put("untried", "its release of Kafka, before 2.6, has no class that loads the certificates alone");
                } catch (java.security.GeneralSecurityException | InvocationTargetException e) {
                    found.add("the broker's certificates for it cannot be loaded: " + words(e));
                }
            }
            if (listener.getProperty("hashed") != null) {
                login(own, listener, found);
            }
            return found;
        }

        private void certificates(Map<?, ?> own, Properties listener, List<Object> found)
                throws java.security.GeneralSecurityException, ReflectiveOperationException {
            Class<?> type = Class.forName("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory", true, loader);
            Object factory = type.getDeclaredConstructor().newInstance();
            type.getMethod("configure", Map.class).invoke(factory, own);
            KeyStore trusted = (KeyStore) type.getMethod("truststore").invoke(factory);
            KeyStore shown = (KeyStore) type.getMethod("keystore").invoke(factory);
            try {
                trustManager(trusted).checkServerTrusted(pem(listener.getProperty("certificate")), "UNKNOWN");
            } catch (CertificateException e) {
                found.add("the broker does not trust the certificate of the listener: " + e.getMessage());
            }
            if (listener.getProperty("authorities") == null) {
                return;
            }
            KeyStore authorities = KeyStore.getInstance(KeyStore.getDefaultType());
            try {
                authorities.load(null, null);
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
            for (X509Certificate each : pem(listener.getProperty("authorities"))) {
                authorities.setCertificateEntry("authority-" + authorities.size(), each);
            }
            String refused = "it has none";
            for (String alias : shown == null ? Collections.<String>emptyList() : Collections.list(shown.aliases())) {
                if (!shown.isKeyEntry(alias)) {
                    continue;
                }
                java.security.cert.Certificate[] chain = shown.getCertificateChain(alias);
                try {
                    trustManager(authorities).checkClientTrusted(Arrays.copyOf(chain, chain.length, X509Certificate[].class), "UNKNOWN");
                    return;
                } catch (CertificateException e) {
                    refused = e.getMessage();
                }
            }
            found.add("the listener does not trust the broker's certificate: " + refused);
        }

        /** Compares the broker's login for SASL/PLAIN with the listener's users, whose passwords are hashed as all secrets are. */
        private void login(Map<?, ?> own, Properties listener, List<Object> found) throws ReflectiveOperationException {
            String mechanism = String.valueOf(own.get("sasl.mechanism.controller.protocol"));
            if (!mechanism.equals("PLAIN")) {
                found.add("the broker logs in with " + mechanism + " (sasl.mechanism.controller.protocol), and the listener asks for PLAIN");
                return;
            }
            Object name = Class.forName("org.apache.kafka.common.network.ListenerName", true, loader)
                    .getMethod("normalised", String.class).invoke(null, "CONTROLLER");
            Class<?> context = Class.forName("org.apache.kafka.common.security.JaasContext", true, loader);
            List<?> entries;
            try {
                Object loaded = context.getMethod("loadServerContext", name.getClass(), String.class, Map.class).invoke(null, name, mechanism, own);
                entries = (List<?>) context.getMethod("configurationEntries").invoke(loaded);
            } catch (InvocationTargetException e) {
                // What the parsers of JAAS complain about may be a piece of a password: only the message for a missing entry is quoted.
                String told = words(e);
                found.add("the broker has no login for it: " + (told.contains("Could not find") ? told : "its JAAS configuration cannot be read"));
                return;
            }
            for (Object entry : entries) {
                Map<String, ?> options = ((AppConfigurationEntry) entry).getOptions();
                Object user = options.get("username");
                Object password = options.get("password");
                if (user == null || password == null) {
                    continue;
                }
                String expected = listener.getProperty("user." + user);
                if (expected == null) {
                    found.add("the listener has no user " + user);
                } else if (!expected.equals(hash(String.valueOf(password)))) {
                    found.add("the password of user " + user + " is another one at the listener");
                }
                return;
            }
            found.add("the broker's login for it has no username and password");
        }

        private static X509TrustManager trustManager(KeyStore store) throws java.security.GeneralSecurityException {
            TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            factory.init(store);
            for (TrustManager each : factory.getTrustManagers()) {
                if (each instanceof X509TrustManager) {
                    return (X509TrustManager) each;
                }
            }
            throw new java.security.NoSuchAlgorithmException("this JVM has no X.509 trust manager");
        }

        private static X509Certificate[] pem(String text) throws CertificateException {
            java.io.InputStream in = new java.io.ByteArrayInputStream(text.getBytes(StandardCharsets.US_ASCII));
            return CertificateFactory.getInstance("X.509").generateCertificates(in).toArray(new X509Certificate[0]);
        }

        /** Returns whether a class comes from a file system that is mounted below the root (proc(5), mountinfo: field 5 is the mount point). */
        private static boolean fromVolume(Class<?> type) {
            java.security.CodeSource source = type.getProtectionDomain().getCodeSource();
            if (source == null || source.getLocation() == null) {
                return false; // of the JVM
            }
            try {
                Path location = Paths.get(source.getLocation().toURI()).toRealPath();
                for (String line : Files.readAllLines(Paths.get("/proc/self/mountinfo"))) {
                    Path mount = Paths.get(line.split(" ")[4].replace("\\040", " "));
                    if (mount.getNameCount() > 0 && location.startsWith(mount)) {
                        return true;
                    }
                }
                return false;
            } catch (IOException | java.net.URISyntaxException | RuntimeException e) {
                return true; // not known to be in the image
            }
        }

        /** Returns how long this JVM caches addresses, null where it does not tell. */
        private static Integer addressCacheSeconds(Instrumentation instrumentation) {
            try {
                return AddressCache.seconds(instrumentation);
            } catch (ReflectiveOperationException | RuntimeException e) {
                return null; // not a JDK with OpenJDK's class library
            }
        }

        /** Returns the system properties of the command line, without the JVM's other options. */
        private Map<String, Object> options() {
            Map<String, Object> found = new TreeMap<>();
            for (String argument : ManagementFactory.getRuntimeMXBean().getInputArguments()) {
                if (argument.startsWith("-D")) {
                    int equals = argument.indexOf('=');
                    String name = equals < 0 ? argument.substring(2) : argument.substring(2, equals);
                    String value = equals < 0 ? "" : argument.substring(equals + 1);
                    found.put(name, shown(value, secret(name) && !name.equals("java.security.auth.login.config")));
                }
            }
            return found;
        }

        /** Returns the entries of the JAAS file, each by hash. */
        private Map<String, Object> jaas() {
            Map<String, Object> found = new TreeMap<>();
            String file = System.getProperty("java.security.auth.login.config", "");
            if (file.isEmpty()) {
                return found;
            }
            found.put("file", file);
            try {
                String text = new String(Files.readAllBytes(Paths.get(file.startsWith("file:") ? file.substring(5) : file)), StandardCharsets.UTF_8);
                Map<String, Object> entries = new TreeMap<>();
                Matcher matcher = JAAS_ENTRY.matcher(text);
                while (matcher.find()) {
                    int end = text.indexOf("};", matcher.end());
                    entries.put(matcher.group(1), hash(text.substring(matcher.end(), end < 0 ? text.length() : end).trim()));
                }
                found.put("entries", entries);
            } catch (IOException | RuntimeException e) {
                found.put("unreadable", e.getClass().getSimpleName());
            }
            return found;
        }

        private List<Object> events() {
            List<Object> found = new ArrayList<>();
            try {
                for (String line : Files.readAllLines(directory.resolve("events"), StandardCharsets.UTF_8)) {
                    found.add(new Json.Raw(line));
                }
            } catch (IOException e) {
                // there was no other JVM
            }
            return found;
        }

        private static String host() {
            try {
                return InetAddress.getLocalHost().getHostName();
            } catch (IOException e) {
                return "";
            }
        }

        private Object call(String type, String method, Class<?>[] types, Object... arguments) throws ReflectiveOperationException {
            return Class.forName(type, true, loader).getMethod(method, types).invoke(null, arguments);
        }

        private Map<String, Object> shown(String value, boolean sensitive) {
            return Collections.<String, Object>singletonMap(sensitive ? "hash" : "value", sensitive && value != null ? hash(value) : value);
        }

        private String hash(String value) {
            try {
                Mac mac = Mac.getInstance("HmacSHA256");
                mac.init(new SecretKeySpec(salt, "HmacSHA256"));
                StringBuilder hex = new StringBuilder();
                for (byte each : mac.doFinal(value.getBytes(StandardCharsets.UTF_8))) {
                    hex.append(String.format("%02x", each));
                }
                return hex.toString();
            } catch (java.security.GeneralSecurityException e) {
                throw new IllegalStateException(e);
            }
        }

        /** Removes from Kafka's words every value that could be secret: KafkaConfig quotes what it refuses. */
        private String complaint(String words, Properties given) {
            String text = words;
            for (String name : given == null ? Collections.<String>emptySet() : given.stringPropertyNames()) {
                Object shown = raw(given).get(name);
                String value = given.getProperty(name);
                if (shown instanceof Map && ((Map<?, ?>) shown).containsKey("hash") && !value.isEmpty()) {
                    text = text.replace(value, "***");
                }
            }
            return text;
        }

        /** Returns arguments as one line; values that follow or are assigned to a secret's name are not shown. */
        private static String masked(List<String> arguments) {
            List<String> shown = new ArrayList<>();
            boolean hide = false;
            for (String argument : arguments) {
                if (hide) {
                    shown.add("***");
                    hide = false;
                } else if (SECRET_NAME.matcher(argument).find()) {
                    int equals = argument.indexOf('=');
                    hide = equals < 0 && argument.startsWith("-");
                    shown.add(equals < 0 ? (hide ? argument : "***") : argument.substring(0, equals) + "=***");
                } else {
                    shown.add(argument);
                }
            }
            return String.join(" ", shown);
        }

        private static boolean secret(String name) {
            return SECRET_NAME.matcher(name).find();
        }
    }

    /** JSON of maps, lists, strings, numbers and booleans. */
    static final class Json {
        private Json() {}

        /** Text that is JSON already. */
        static final class Raw {
            private final String text;

            Raw(String text) {
                this.text = text;
            }
        }

        static String of(Object value) {
            StringBuilder out = new StringBuilder();
            write(value, out);
            return out.toString();
        }

        static String text(String value) {
            return of(String.valueOf(value));
        }

        private static void write(Object value, StringBuilder out) {
            if (value == null) {
                out.append("null");
            } else if (value instanceof Raw) {
                out.append(((Raw) value).text);
            } else if (value instanceof Map) {
                char separator = '{';
                for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                    out.append(separator);
                    separator = ',';
                    write(String.valueOf(entry.getKey()), out);
                    out.append(':');
                    write(entry.getValue(), out);
                }
                out.append(separator == '{' ? "{}" : "}");
            } else if (value instanceof List) {
                out.append('[');
                String separator = "";
                for (Object each : (List<?>) value) {
                    out.append(separator);
                    separator = ",";
                    write(each, out);
                }
                out.append(']');
            } else if (value instanceof Number || value instanceof Boolean) {
                out.append(value);
            } else {
                out.append('"');
                String text = value.toString();
                for (int i = 0; i < text.length(); i++) {
                    char c = text.charAt(i);
                    if (c == '"' || c == '\\') {
                        out.append('\\').append(c);
                    } else if (c < 0x20 || c > 0x7e) {
                        out.append(String.format("\\u%04x", (int) c));
                    } else {
                        out.append(c);
                    }
                }
                out.append('"');
            }
        }
    }
}
